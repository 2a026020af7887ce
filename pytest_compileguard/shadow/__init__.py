"""One guarded call: the test's own eager call, and its compiled shadow beside it."""
