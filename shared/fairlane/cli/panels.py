"""Under which headings ``fairlane --help`` lists the commands, in this order."""

HERE = "Everything on this machine"
RUNS = "Runs"
OPERATIONS = "Operations"
ROLES = "One role at a time"
