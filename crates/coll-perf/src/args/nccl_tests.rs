//! nccl-tests' options that coll-perf has not, each with the reason or what to do instead. Reference:
//! nccl-tests 2.19.6.

/// The way out of an option of nccl-tests' that is not known; `option` as it was typed, with `-` for `_`.
pub fn way_out(option: &str) -> Option<&'static str> {
    let known = |(options, _): &&(&[&str], &str)| options.contains(&option);
    WAYS_OUT.iter().find(known).map(|(_, way_out)| *way_out)
}

type WaysOut = [(&'static [&'static str], &'static str)];

#[rustfmt::skip]
const WAYS_OUT: &WaysOut = &[
    (&["-t", "--nthreads"], "use --ranks N: each rank is a thread of this process"),
    (&["-N", "--run-cycles"], "every size is measured in rounds: use --rounds N"),
    (&["-p", "--parallel-init"], "the ranks always start at the same time: leave it out"),
    (&["-y", "--stream-null"], "each rank has a stream of its own, which waits for no other: leave it out"),
    (&["-C", "--report-cputime"], "the time is what the collective takes, not what its launch takes: leave it out"),
    (&["-S", "--report-timestamps"], "--json has the times at which the run began and ended"),
    (&["-J", "--output-file"], "use --json=FILE"),
    (&["-a", "--average"], "the slowest rank counts; every rank's time is in --json and with -v"),
    (&["-x", "--cta-policy", "-D", "--device-implementation", "-V", "--device-cta-count"], "NCCL chooses its kernels; its variables tell it what to leave out, NCCL_MAX_CTAS for one"),
    (&["-M", "--memory"], "the memory is plain device memory, or NCCL's own with -R 1"),
    (&["-u", "--unalign"], "buffers always begin at the same place of a page: leave it out"),
    (&["-I", "--per-iter-timing"], "every iteration is always timed by itself: p95, p99 and max are in the table, all in --json"),
    (&["-K", "--per-iter-skip"], "use -w N: the warm-up is not counted"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_there_once_and_has_one_line() {
        let mut seen = std::collections::HashSet::new();
        for (options, way_out) in WAYS_OUT {
            assert!(!way_out.contains('\n') && !way_out.ends_with('.'), "{way_out}");
            assert!(options.iter().all(|option| option.starts_with('-') && seen.insert(option)));
        }
    }

    #[test]
    fn every_letter_of_nccl_tests_is_an_option_or_has_a_way_out() {
        use clap::CommandFactory;
        let command = crate::args::Args::command();
        for letter in "tgbeifodrnwmNpczyTGCSJaRxDVMuIKh".chars() {
            let ours = command.get_arguments().any(|arg| arg.get_short() == Some(letter)) || letter == 'h';
            assert!(ours != way_out(&format!("-{letter}")).is_some(), "-{letter}");
        }
    }
}
