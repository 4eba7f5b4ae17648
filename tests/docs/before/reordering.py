"""A store."""

import siafu

siafu.load("demo").save("my.store")
