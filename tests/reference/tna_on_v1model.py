"""The sources of the TNA program, rewritten for v1model, so that softswitch can execute what they
say.

This shows whether the program means what it should, without a compiler for Tofino. It does not show
whether the program fits one. p4c-bm2-ss compiles the result. Left out is what v1model has no like
of: counters of the program itself, and groups of next hops.

A register with an initial value is kept as the difference (exclusive or) to it, because BMv2's
begin with zero.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

P4SRC = Path(__file__).parents[2] / "p4src"

_HEAD = """
#include <core.p4>
#include <v1model.p4>
typedef bit<9> PortId_t;
typedef bit<5> QueueId_t;
struct ingress_intrinsic_metadata_t { bit<1> resubmit_flag; bit<9> ingress_port; }
struct ingress_intrinsic_metadata_for_tm_t { bit<9> ucast_egress_port; bit<5> qid; bit<16> mcast_grp_a; }
struct ingress_intrinsic_metadata_from_parser_t { bit<48> global_tstamp; bit<16> parser_err; }
struct ingress_intrinsic_metadata_for_deparser_t { bit<3> drop_ctl; bit<3> digest_type; bit<3> resubmit_type; }
struct egress_intrinsic_metadata_t { bit<9> egress_port; bit<19> enq_qdepth; }
struct egress_intrinsic_metadata_from_parser_t { bit<48> global_tstamp; }
struct egress_intrinsic_metadata_for_deparser_t { bit<3> drop_ctl; }
struct egress_intrinsic_metadata_for_output_port_t { bit<1> unused; }
"""

_TAIL = """
struct pass_t {
    @field_list(1) bit<16> memory;
    @field_list(1) bit<16> tag;
    @field_list(1) ticks_t reference;
    @field_list(1) bit<48> stamp;
}
struct all_t { metadata_t ig; egress_metadata_t eg; pass_t again; }

parser P(packet_in packet, out headers_t hdr, inout all_t meta, inout standard_metadata_t sm) {
    state start { transition parse_ethernet; }
    PARSER_STATES
}
control V(inout headers_t hdr, inout all_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp,
            hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.frag_offset,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control C(inout headers_t hdr, inout all_t meta) {
    apply {
        update_checksum(meta.eg.is_plain_ipv4, { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp,
            hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.frag_offset,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t hdr, inout all_t meta, inout standard_metadata_t sm) {
    EchelonIngress() tna;
    counter(4, CounterType.packets) dropped;
    apply {
        ingress_intrinsic_metadata_t ig_intr_md;
        ingress_intrinsic_metadata_from_parser_t ig_prsr_md;
        ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md;
        ingress_intrinsic_metadata_for_tm_t ig_tm_md;
        ig_intr_md.resubmit_flag = 0;
        ig_intr_md.ingress_port = sm.ingress_port;
        // A resubmitted packet of BMv2 has no time of arrival.
        if (meta.again.tag[13:12] == PASS_FIRST) {
            meta.again.stamp = sm.ingress_global_timestamp;
        }
        ig_prsr_md.global_tstamp = meta.again.stamp * 1000;
        ig_prsr_md.parser_err = 0;
        if (sm.parser_error != error.NoError) {
            ig_prsr_md.parser_err = 2;
        }
        ig_dprsr_md.drop_ctl = 0;
        ig_dprsr_md.digest_type = 0;
        ig_dprsr_md.resubmit_type = 0;
        ig_tm_md.ucast_egress_port = 511;
        ig_tm_md.qid = 0;
        ig_tm_md.mcast_grp_a = 0;
        meta.ig.bad_checksum = sm.checksum_error == 1;
        meta.ig.resubmit.memory = meta.again.memory;
        meta.ig.resubmit.tag = meta.again.tag;
        meta.ig.resubmit.reference = meta.again.reference;
        meta.ig.pass = meta.again.tag[13:12];
        tna.apply(hdr, meta.ig, ig_intr_md, ig_prsr_md, ig_dprsr_md, ig_tm_md);
        sm.egress_spec = ig_tm_md.ucast_egress_port;
        sm.priority = ig_tm_md.qid[2:0];
        sm.mcast_grp = ig_tm_md.mcast_grp_a;
        if (ig_dprsr_md.drop_ctl != 0) {
            dropped.count((bit<32>)meta.ig.drop_reason);
            mark_to_drop(sm);
        } else if (ig_dprsr_md.resubmit_type == RESUBMIT) {
            meta.again.memory = meta.ig.resubmit.memory;
            meta.again.tag = meta.ig.resubmit.tag;
            meta.again.reference = meta.ig.resubmit.reference;
            resubmit_preserving_field_list(1);
        } else if (ig_dprsr_md.digest_type == DIGEST_FLOW_EVENT) {
            digest<flow_event_t>(1, { meta.ig.last, meta.ig.first, meta.ig.flow, meta.ig.epoch, meta.ig.slack_key,
                                      meta.ig.now });
        }
    }
}
control E(inout headers_t hdr, inout all_t meta, inout standard_metadata_t sm) {
    EchelonEgress() tna;
    apply {
        egress_intrinsic_metadata_t eg_intr_md;
        egress_intrinsic_metadata_from_parser_t eg_prsr_md;
        egress_intrinsic_metadata_for_deparser_t eg_dprsr_md;
        egress_intrinsic_metadata_for_output_port_t eg_oport_md;
        eg_intr_md.egress_port = sm.egress_port;
        eg_intr_md.enq_qdepth = sm.enq_qdepth;
        eg_prsr_md.global_tstamp = sm.egress_global_timestamp * 1000;
        eg_dprsr_md.drop_ctl = 0;
        eg_oport_md.unused = 0;
        meta.eg.bridge.wanted = meta.ig.bridge.wanted;
        meta.eg.bridge.is_ranked = meta.ig.bridge.is_ranked;
        meta.eg.bridge.is_relative = meta.ig.bridge.is_relative;
        meta.eg.bridge.may_move = meta.ig.bridge.may_move;
        meta.eg.bridge.stream = meta.ig.bridge.stream;
        meta.eg.bridge.memory = meta.ig.bridge.memory;
        meta.eg.bridge.reference = meta.ig.bridge.reference;
        tna.apply(hdr, meta.eg, eg_intr_md, eg_prsr_md, eg_dprsr_md, eg_oport_md);
    }
}
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""

_REGISTER = re.compile(r"Register<([\w<>]+), \w+>\((\w+)(?:, ([^;]*?))?\) (\w+);")
_ACTION = re.compile(
    r"RegisterAction<([\w<>]+), ([\w<>]+), ([\w<>]+)>\((\w+)\) (\w+) = \{\s*"
    r"void apply\(inout [\w<>]+ (\w+)(?:, out [\w<>]+ (\w+))?\) \{(.*?)\n\s*\}\s*\};",
    re.DOTALL,
)
_STRUCT = re.compile(r"struct (\w+) \{(.*?)\}", re.DOTALL)


def rewritten(scratch: Path) -> str:
    """Return the TNA program as a v1model program. `scratch` is a directory for empty files."""
    for name in ("core.p4", "tna.p4"):
        (scratch / name).write_text("")
    command = [
        "cpp",
        "-P",
        "-undef",
        "-nostdinc",
        "-x",
        "assembler-with-cpp",
        "-D__TARGET_TOFINO__=1",
        "-I",
        scratch,
    ]
    done = subprocess.run(
        [*command, "echelon.p4"], cwd=P4SRC / "tna", check=True, capture_output=True, text=True
    )
    text = done.stdout
    text = text[: text.index("Pipeline(")]
    parser = text[text.index("parser EchelonEgressParser") :]
    states = parser[parser.index("    state parse_ipv4") : parser.index("\n}")]
    # Both parsers and deparsers go.
    text = re.sub(
        r"^(parser|control) \w+(?:Parser|Deparser)\(.*?\n\}\n",
        "",
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
    structs = {name: dict(_fields(body)) for name, body in _STRUCT.findall(text)}
    text = text.replace("@flexible", "")
    text = re.sub(r"header (resubmit_h|bridge_h)", r"struct \1", text)
    text = re.sub(r"\s*meta\.(resubmit|bridge)\.setValid\(\);", "", text)
    text = re.sub(
        r"funnel_shift_right\((\S+), (\S+), (\S+), (\d+)\);",
        r"\1 = (bit<32>)((\2 ++ \3) >> \4);",
        text,
    )
    text = re.sub(r"max\(([\w.]+), 0\)", r"(\1 > 0 ? \1 : 0)", text)
    for pattern in (
        r"\s*(Direct)?Counter<[^;]*;",
        r"\s*Hash<[^;]*;",
        r"\s*Action(Profile|Selector)\([^;]*;",
        r"\s*(flow_bytes|dropped|sent)\.count\([^;]*;",
        r"\s*(counters|implementation) = \w+;",
        r"\s*[\w.]+: selector;",
    ):
        text = re.sub(pattern, "", text)
    initial: dict[str, dict[str, str]] = {}
    kinds: dict[str, str] = {}

    def register(found: re.Match[str]) -> str:
        kind, size, begin, name = found.groups()
        fields = structs.get(kind, {"": kind})
        begins = (
            [word.strip() for word in (begin or "").strip("{}").split(",")]
            if begin
            else ["0"] * len(fields)
        )
        initial[name], kinds[name] = dict(zip(fields, begins, strict=True)), kind
        return "".join(
            f"register<bit<{_width(of)}>>({size}) {name}{'_' + field if field else ''};\n    "
            for field, of in fields.items()
        )

    def action(found: re.Match[str]) -> str:
        kind, index, output, name, action_name, value, result, body = found.groups()
        fields = structs.get(kind, {"": kind})
        lines = []
        for field, of in fields.items():
            local, where = f"{value}_{field}", f"{name}{'_' + field if field else ''}"
            lines += [f"bit<{_width(of)}> {local}_bits;", f"{of} {local};"]
            lines += [f"{where}.read({local}_bits, (bit<32>)at);"]
            lines += [
                (
                    f"{local} = ({of})({local}_bits ^"
                    f" (bit<{_width(of)}>)({of})({initial[name][field]}));"
                )
            ]
            body = re.sub(
                rf"\b{value}\.{field}\b" if field else rf"(?<![.\w]){value}\b(?!_)", local, body
            )
        after = [
            f"{name}{'_' + field if field else ''}.write((bit<32>)at,"
            f" (bit<{_width(of)}>){value}_{field} ^"
            f" (bit<{_width(of)}>)({of})({initial[name][field]}));"
            for field, of in fields.items()
        ]
        out = f", out {output} {result}" if result else ""
        return (
            f"action {action_name}(in {index} at{out}) {{\n"
            + "\n".join([*lines, body, *after])
            + "\n}"
        )

    # One control after the other: names of registers repeat.
    parts = re.split(r"(?=\ncontrol )", text)
    for place, part in enumerate(parts):
        initial.clear()
        parts[place] = _ACTION.sub(action, _REGISTER.sub(register, part))
    text = "".join(parts)
    text = re.sub(r"([\w.]+) = (\w+)\.execute\(([^;]*)\);", r"\2(\3, \1);", text)
    text = re.sub(r"(\w+)\.execute\(([^;]*)\);", r"\1(\2);", text)
    return _HEAD + text + _TAIL.replace("PARSER_STATES", states)


def _fields(body: str) -> list[tuple[str, str]]:
    return [(name, kind) for kind, name in re.findall(r"([\w<>]+)\s+(\w+);", body)]


def _width(kind: str) -> int:
    found = re.search(r"<(\d+)>", kind)
    return int(found[1]) if found else 8


def compiled(directory: Path, p4info: Path | None = None) -> bytes:
    """Return the program in BMv2's JSON, and write its P4Info if a file is given.

    Raise CalledProcessError if p4c-bm2-ss does not take it.
    """
    source, output = directory / "tna_on_v1model.p4", directory / "tna_on_v1model.json"
    source.write_text(rewritten(directory))
    described = [] if p4info is None else ["--p4runtime-files", p4info]
    command = [
        "p4c-bm2-ss",
        "--std",
        "p4-16",
        "--arch",
        "v1model",
        *described,
        "-o",
        output,
        source,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return output.read_bytes()
