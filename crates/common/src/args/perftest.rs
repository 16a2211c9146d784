//! perftest's options that these tools don't have, each with what to do instead: whoever types one from habit gets a
//! clear word, and no guess at what was meant. Reference: perftest 6.06 and 6.29.

/// The way out of a perftest option that a tool does not know; `option` as it was typed, with `-` for `_`.
pub fn way_out(option: &str) -> Option<&'static str> {
    let known = |(options, _): &&(&[&str], &str)| options.iter().any(|known| matches(known, option));
    WAYS_OUT.iter().find(known).map(|(_, way_out)| *way_out)
}

/// A name that ends in `*` stands for all that begin so.
fn matches(known: &str, option: &str) -> bool {
    match known.strip_suffix('*') {
        Some(beginning) => option.starts_with(beginning),
        None => option == known,
    }
}

/// Options, and the way out of each.
type WaysOut = [(&'static [&'static str], &'static str)];

#[rustfmt::skip]
const WAYS_OUT: &WaysOut = &[
    (&["-c", "--connection"], "the queue pairs are always reliable-connected (RC): leave it out"),
    (&["-C", "--report-cycles"], "times are in units of time, never in cycles: leave it out"),
    (&["-e", "--events"], "completions are polled for, as perftest has it for plain writes: leave it out"),
    (&["-f", "--margin"], "nothing is cut off a -D round: the warm-up is separate (--warmup), what is outstanding at the end is counted"),
    (&["-g", "--mcg", "-M", "--multicast*", "-o", "--outs", "-A", "--atomic-type"], "it is for sends, reads or atomics, and these tools write: leave it out"),
    (&["-H", "--report-histogram", "--report-histogrm", "-U", "--report-unsorted"], "it is for latency: use write-lat, with -H or -U FILE"),
    (&["-L", "--hop-limit"], "the hop limit is always 64: leave it out"),
    (&["-N", "--noPeak", "--no-peak"], "the peak costs one clock reading a batch of completions: leave it out"),
    (&["-O", "--dualport"], "run two pairs at the same time, each with its own -d, -i and -p"),
    (&["-r", "--rx-depth", "--recv-post-list"], "plain writes need no receives: leave it out"),
    (&["-R", "--rdma-cm", "-z", "--comm-rdma-cm", "--com-rdma-cm"], "rdma_cm is not supported, connections are made over the TCP control channel: leave it out"),
    (&["-T", "--tos"], "it needs rdma_cm; set the traffic class with --tclass, which has the DSCP and ECN bits in the same places"),
    (&["--flow-label"], "the flow label is always 0: leave it out"),
    (&["--pkey-index"], "the first partition key (index 0) is always used: leave it out"),
    (&["--dlid"], "the LID comes from the other end: leave it out"),
    (&["-w", "--limit-bw"], "use --min-bw, with a unit: --min-bw 90Gb/s; each size is checked"),
    (&["-y", "--limit-msgrate"], "use --min-msgrate, with a unit: --min-msgrate 1.5Mpps; each size is checked"),
    (&["-W", "--report-counters"], "all counters that grew are always in --json, and in the text with -v"),
    (&["-X", "--vector"], "completions are polled for, no interrupt is used: leave it out"),
    (&["--report-both", "--report-per-port"], "--json has each direction of each round in rounds[], -v shows them"),
    (&["--reversed"], "swap server and client: start the server on this host"),
    (&["--out-json"], "use --json: one document on stdout instead of the table"),
    (&["--out-json-file"], "use --json=FILE: one document in FILE beside the table"),
    (&["--output"], "use --json with jq: .results[0].bw_average_mib_per_sec or .results[0].msg_rate_mpps"),
    (&["--cpu-util"], "run the tool under perf stat or pidstat"),
    (&["--use-cuda-bus-id"], "--use-cuda takes a PCI address as well: --use-cuda=0000:17:00.0"),
    (&["--use-cuda-dmabuf"], "dma-buf is tried first; --cuda-path dmabuf allows nothing else"),
    (&["--use-cuda-pcie-mapping"], "--cuda-path dmabuf-pcie: dma-bufs that are mapped over PCIe"),
    (&["--cuda-mem-type", "--gpu-touch", "--use-data-direct"],
        "GPU memory is plain device memory that no kernel touches, and the header says how it is reached: leave it out"),
    (&["--use-rocm*", "--use-neuron*", "--use-hl*", "--use-mlu*", "--use-musa*", "--use-opencl*", "--use-ib-dm-dmabuf"],
        "of accelerators only NVIDIA's GPUs are known here (--use-cuda): leave it out"),
    (&["--use-hugepages"], "use --hugepages; the server needs no option"),
    (&["--mmap*", "--odp", "--use-null-mr", "--payload-file-path"],
        "the memory is anonymous pages, registered before the run: leave it out"),
    (&["--disable-pcie-relaxed"], "relaxed ordering is off with --validate, else allowed; the header says which"),
    (&["--rate-limit-type", "--rate-units", "--typical-pkt-size"], "give --rate-limit its unit: --rate-limit 10Gb/s, or 1.5Mpps; the end that writes keeps it, not the adapter"),
    (&["--latency-gap"], "there is no pause between messages: leave it out"),
    (&["--perform-warm-up"], "there is a warm-up without it; --warmup N sets its writes, 0 turns it off"),
    (&["--cqe-poll", "--disable-dynamic-polling"], "up to 64 completions are taken at a time: leave it out"),
    (&["--write-with-imm", "--unsolicited-write"], "these are plain writes, without immediate data: leave it out"),
    (&["--data-validation*"], "use --validate: any size, depth and transport"),
    (&["--no-lock", "--no-enhanced-reorder", "--use-ooo"], "no queue pair or completion queue is shared by threads, and there is no choice of the provider's own modes: leave it out"),
    (&["--use-old-post-send"], "ibv_wr_* is used where the provider has it, else ibv_post_send; JSON says which (posting): leave it out"),
    (&["--pin-cores"], "use --cores, on each end its own: --cores 2-5,8"),
    (&["--numa-node"], "use --numa N, on each end its own; the default is the device's node"),
    (&["--disable-numa"], "use --numa none, on each end its own"),
    (&["--force-link"], "the link layer is the port's own: leave it out"),
    (&["--wait-destroy"], "leave it out; nothing is kept after a run"),
    (&["--source-ip"], "use --bind-source-ip"),
    (&["--dont-xchg-versions"], "the protocol's version is always checked: install the same release on both ends"),
    (&["--aes-xts*", "--encrypt-*", "--data-enc-*", "--kek-path", "--credentials-path", "--sig-offload*", "--log-dci-streams", "--log-active-dci-streams", "--congest-type", "--tph-mem", "--cpu-id", "--ph"],
        "adapters' own modes (encryption, signatures, DC, congestion, TPH) are not supported: leave it out"),
    (&["-E", "-B", "-J", "-j", "-K", "-k", "-Y", "-G", "-P", "-Z", "--vlan*", "--flows*", "--tcp", "--promiscuous", "--raw-mcast", "--raw-ipv6", "--source-mac", "--dest-mac", "--local-ip", "--remote-ip", "--local-port", "--remote-port", "--server", "--client"],
        "it is for perftest's raw Ethernet tools: leave it out"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_there_once_and_has_one_line() {
        let mut seen = std::collections::HashSet::new();
        for (options, way_out) in WAYS_OUT {
            assert!(!way_out.contains('\n') && !way_out.ends_with('.'), "{way_out}");
            for option in *options {
                assert!(option.starts_with('-') && seen.insert(option), "{option}");
            }
        }
    }

    #[test]
    fn families_of_options_share_a_way_out() {
        for option in ["--use-rocm", "--use-hl-mem", "--use-neuron-dmabuf"] {
            assert!(way_out(option).is_some_and(|words| words.contains("NVIDIA")), "{option}");
        }
        assert!(way_out("-R").is_some_and(|words| words.contains("rdma_cm is not supported")));
        assert_eq!(way_out("--frobnicate"), None);
    }
}
