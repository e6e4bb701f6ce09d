"""Schedules of cross traffic over real sockets: `replay` has both ends, `wire` what goes between them."""
