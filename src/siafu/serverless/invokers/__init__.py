"""Where Lambdas run, one file each: processes of this machine, AWS."""
