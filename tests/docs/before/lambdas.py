"""Stores; a small one stands in for one that would be fetched."""

import siafu

siafu.load("demo").save("my.store")
siafu.load("demo").save("pubmed")
