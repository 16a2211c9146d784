//! perftest's options that are typed from habit and change nothing here: taken, with a word on stderr.

use clap::Args;

/// Needless options. They are taken, since scripts have them and leaving them out changes nothing.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Taken from perftest's users, and needless")]
pub struct HabitArgs {
    /// The clock does not depend on the processor's frequency
    #[arg(short = 'F', long = "CPU-freq", alias = "cpu-freq")]
    pub cpu_freq: bool,
    /// The GIDs are chosen to match on both ends, IPv6 where that is what they have
    #[arg(long)]
    pub ipv6: bool,
    /// The control channel takes IPv4 and IPv6
    #[arg(long)]
    pub ipv6_addr: bool,
}

impl HabitArgs {
    /// A line for each that was given.
    pub fn notes(&self) -> Vec<&'static str> {
        let notes = [
            (self.cpu_freq, "-F is needless: the clock does not depend on the processor's frequency"),
            (
                self.ipv6,
                "--ipv6 is needless: the GIDs are chosen to match on both ends; --gid-index names another entry",
            ),
            (self.ipv6_addr, "--ipv6-addr is needless: the control channel takes IPv4 and IPv6"),
        ];
        notes.into_iter().filter_map(|(given, note)| given.then_some(note)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_noted() {
        assert!(HabitArgs::default().notes().is_empty());
        let given = HabitArgs { ipv6: true, ..HabitArgs::default() };
        assert_eq!(given.notes().len(), 1);
    }
}
