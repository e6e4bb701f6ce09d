import sys, time, os
from pathlib import Path
import plugins.aggregation.tests.tofino_switch as t
few = os.environ.get("FEW")
if few:
    t.BUILD = Path("/tmp/tofagg/few")
    class S(t.TofinoProgramSwitch):
        def _frame(self, d):
            f = super()._frame(d)
            v = f[78:]
            if not v: return f
            assert len(v) == 8
            vals = v[:4] + bytes(124) + v[4:] + bytes(124)
            n = 28 + 20 + 16 + 256
            from plugins.aggregation.tests import program_switch as ps
            head = ps._ipv4_header(int.from_bytes(f[26:30],'big'), int.from_bytes(f[30:34],'big'), n, d.congested)
            return f[:14] + head + f[34:38] + (n-20).to_bytes(2,'big') + f[40:78] + vals
        def _read(self, f):
            if len(f) > 78:
                v = f[78:]
                assert len(v)==256, len(v)
                assert not any(v[4:128]) and not any(v[132:]), v.hex()
                n = 28+20+16+8
                assert int.from_bytes(f[16:18],'big') == len(f)-14 and int.from_bytes(f[38:40],'big') == len(f)-34
                assert t and sum16(f[14:34]) == 0xffff
                from plugins.aggregation.tests import program_switch as ps
                head = ps._ipv4_header(int.from_bytes(f[26:30],'big'), int.from_bytes(f[30:34],'big'), n, False)
                f = f[:14]+head+f[34:38]+(n-20).to_bytes(2,'big')+f[40:78]+v[:4]+v[128:132]
            return super()._read(f)
    from plugins.aggregation.tests.program_switch import _sum16 as sum16
    progs = t.Programs(t.InAssembly, S, 2)
else:
    progs = t.tofino_programs()
start = time.time(); n = 0; total = {}
from collections import Counter
tot = Counter()
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    try:
        tot.update(progs.run(seed))
    except BaseException as e:
        print("seed", seed, repr(e)[:3000]); 
        raise
    n += 1
print(n, time.time() - start, tot)
