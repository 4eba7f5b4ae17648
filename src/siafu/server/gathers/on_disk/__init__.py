"""Gathers whose rows are on disk, by groups of targets: sums, maxima and attention bucket by bucket, others on collected sources."""
