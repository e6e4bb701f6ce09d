"""The ways in which a switch ranks the packets of a flow: one module for each, of the name of its P4 control."""
