#!/bin/sh
# All hooks of slurm.conf; Slurm says which one it calls. Goes to /etc/echelon/slurm-hook.sh, on the controller of Slurm
# and on its nodes. Nothing here fails a job or drains a node, but for `strict` in slurm.yaml.
PATH=/opt/echelon/bin:/usr/local/bin:/usr/bin:/bin # with Slurm's own commands
export PATH
umask 022 # tasks of users read what the node was told

folder=/run/echelon-slurm
environment=$folder/$SLURM_JOB_ID

# Only jobs with such a comment wait for Python.
case $SLURM_SCRIPT_CONTEXT:$SLURM_JOB_COMMENT in
prolog_slurmctld:echelon:*) set -- timeout 120 echelon slurm prolog ;;
epilog_slurmctld:echelon:*) set -- timeout 60 echelon slurm epilog ;;
prolog_slurmd:echelon:*)
    mkdir -p $folder
    message=$(timeout 8 echelon slurm env 2>&1 >"$environment.new") ||
        echo "print Echelon: this job starts without classes: $(echo "$message" | tr '\n' ' ')" >"$environment.new"
    mv "$environment.new" "$environment" # no task reads half of it
    exit 0
    ;;
epilog_slurmd:*)
    rm -f "$environment" "$environment.new"
    exit 0
    ;;
prolog_task:*)
    # What it prints is for the first task of each step.
    [ -r "$environment" ] || exit 0
    [ "$SLURM_PROCID" = 0 ] && exec cat "$environment"
    exec grep -v '^print ' "$environment"
    ;;
*) exit 0 ;;
esac

message=$("$@" 2>&1)
status=$?
[ -n "$message" ] && logger -t echelon-slurm -- "$message"
[ $status -eq 75 ] && exit 1
exit 0
