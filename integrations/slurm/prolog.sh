#!/bin/bash
# Slurm prolog: lets a job start on a node whose verdict of this boot is Pass. Reads three lines; measures nothing.
# A Pass, and Inconclusive with INCONCLUSIVE=run, start no other program. Slurm sets no PATH for a prolog.
CONF=${PRECISION_CONF:-/etc/precision/precision.conf}
VERDICT=${PRECISION_VERDICT:-/run/precision/verdict}
BOOT=${PRECISION_BOOT_ID:-/proc/sys/kernel/random/boot_id}
SCONTROL=${PRECISION_SCONTROL:-/usr/bin/scontrol}
INCONCLUSIVE=''

[ -r "$CONF" ] && while IFS='=' read -r key value; do
  [ "$key" = INCONCLUSIVE ] && INCONCLUSIVE=$value
done < "$CONF"
verdict='' boot='' reason='' now=''
[ -r "$VERDICT" ] && { read -r verdict; read -r boot; read -r reason; } < "$VERDICT"
[ -r "$BOOT" ] && read -r now < "$BOOT"
if [ "$verdict" = Pass ] || [ "$verdict" = Fail ] || [ "$verdict" = Inconclusive ]; then
  [ "$boot" = "$now" ] || { verdict=Inconclusive reason='measured before this boot'; }
else
  verdict=Inconclusive reason='no verdict of this boot: see systemctl status precision-verdict'
fi

case $verdict:$INCONCLUSIVE in
  Pass:*) exit 0 ;;
  Fail:* | Inconclusive:drain) ;;
  Inconclusive:run) exit 0 ;;
  *) # An unfinished installation drains nobody's fleet.
    echo "print precision: INCONCLUSIVE is not set to drain or run in $CONF: this node is not judged" >&2
    exit 0 ;;
esac
# The exit code drains the node whatever happens here; scontrol only says why.
reason="precision: $verdict: ${reason:0:200}"
echo "$reason" >&2
[ -x "$SCONTROL" ] && /usr/bin/timeout 0.8 "$SCONTROL" update "NodeName=${SLURMD_NODENAME:-${HOSTNAME%%.*}}" State=DRAIN "Reason=$reason" >&2
exit 1
