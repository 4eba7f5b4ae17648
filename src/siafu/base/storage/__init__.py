"""Files and directories that are whole or absent, documents of others, mapped arrays."""
