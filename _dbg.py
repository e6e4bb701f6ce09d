import os, sys
pass
sys.argv=["x", sys.argv[1], str(int(sys.argv[1])+1)]
from echelon_tofino.emulator.pipeline import TofinoSwitch
log=[]
o=TofinoSwitch._ingress
def ing(self, port, data, now, r, d):
    q=o(self, port, data, now, r, d)
    log.append(("ingress", port, data[:100].hex(), [(x.port, x.queue, x.context.data[:100].hex()) for x in q], dict(self._dropped), {n:[c.array.read(i)[0] for i in range(12 if 'aggr' in n else 4)] for n,c in self.program.counters.items() if c.array is not None}))
    return q
TofinoSwitch._ingress=ing
oe=TofinoSwitch.egress
def eg(self, queued, *a):
    r=oe(self, queued, *a)
    log.append(("egress", queued.port, [(x.port, x.packet and x.packet[:100].hex()) for x in r]))
    return r
TofinoSwitch.egress=eg
op=TofinoSwitch.process
def pr(self,*a):
    log.clear(); return op(self,*a)
TofinoSwitch.process=pr
from echelon_tofino.emulator.tables import MatchTable
oss=MatchTable.searcher
def sr(self, reads):
    f=oss(self, reads)
    def g(v):
        r=f(v)
        if any(x in self.name for x in ("place","aggregation","tree","way","values")) and "sum_" not in self.name:
            log.append(("table", self.name, {k.name: hex(rd(v)) for k,rd in zip(self.keys, reads)}, r and (r.action, r.args)))
        return r
    return g
MatchTable.searcher=sr
from echelon_tofino.emulator.stateful import StatefulRegister
oex=StatefulRegister.execute
full=[]
def ex(self, action, index, vector):
    r=oex(self, action, index, vector)
    if "place_sum" not in self.name:
        e=("salu", self.name, action.name, index, hex(r), self.low[index], self.high[index], [hex(f(vector)) for f in self._inputs])
        log.append(e); full.append(e)
    return r
StatefulRegister.execute=ex
try:
    import _try
except AssertionError as e:
    for l in full[-60:]: print(*l)
    print("-----")
    for l in log: print(*l, sep="\n   ")
