"""The pages of the site that follow from the code: commands, files, APIs, P4 tables, plug-ins."""
