#!/bin/sh
# Healthy: the process that wrote the ready file exists, and is neither stopped nor dead.
# It uses a shell and /proc, because a Python interpreter for each check of each container is expensive. It does not
# check Redis: processes survive a restart of Redis, and checks that all fail at once hide the one that is broken.
ready=${1:-/run/fairlane/ready}

pid=$(sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' "$ready") || exit 1
[ -n "$pid" ] || { echo "no pid in $ready"; exit 1; }
state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status") || exit 1
case $state in
R | S | D) exit 0 ;;
*) echo "process $pid is in state $state"; exit 1 ;;
esac
