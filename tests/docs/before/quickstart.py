"""A second store."""

import siafu

siafu.load("demo").save("other-store")
