"""Letters between the processes of a cluster: their encoding, who is there, and the post that brings them."""
