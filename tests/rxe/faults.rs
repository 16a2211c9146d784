//! Faults that are set up in a VM: one script each, in the folder `faults`.

use linkproof_tests::lab::{Lab, Outcome, User, Vm};

/// A fault, set up in a VM and undone when dropped, so that a failed test does not fail the next ones.
pub(crate) struct Fault<'a> {
    lab: &'a Lab,
    vm: Vm,
    script: &'static str,
}

impl<'a> Fault<'a> {
    /// Sets up what `script` describes: a function `set_up`, and one `undo`.
    pub(crate) fn set_up(lab: &'a Lab, vm: Vm, script: &'static str) -> Self {
        lab.shell(vm, &format!("{script}\nset_up"));
        Self { lab, vm, script }
    }
}

impl Drop for Fault<'_> {
    fn drop(&mut self) {
        let outcome = self.lab.run(self.vm, &["sh", "-ec", &format!("{}\nundo", self.script)]);
        if outcome.status != 0 && !std::thread::panicking() {
            panic!("a fault could not be undone\n{}", outcome.show());
        }
    }
}

/// Runs `program` in `b` as `user` while `vm` is as `script` has it. Where that is the same VM it takes one connection instead of
/// three.
pub(crate) fn run_under(lab: &Lab, vm: Vm, script: &'static str, user: User, program: &[&str]) -> Outcome {
    if vm != Vm::B {
        let _fault = Fault::set_up(lab, vm, script);
        return lab.run_as(Vm::B, user, program);
    }
    let script = format!("{script}\n{AROUND}");
    let memlock = match user {
        User::Root => String::new(),
        User::Nobody { memlock } => memlock.to_string(),
    };
    let outcome = lab.run(vm, &[&["sh", "-c", &script, &memlock], program].concat());
    assert!(!outcome.stderr.contains(NOT_DONE), "{}", outcome.show());
    outcome
}

/// What stderr has where a fault could not be set up or undone.
const NOT_DONE: &str = "the lab could not ";

/// Sets a fault up, runs the arguments as root or, with a locked-memory limit as the first, as nobody, and undoes it whatever
/// has come. The shell looks at each step of both functions: they run in subshells of their own.
const AROUND: &str = r#"
(set -e; set_up) >&2
[ $? = 0 ] || { echo "the lab could not set the fault up" >&2; exit 125; }
back() {
    status=$?
    trap - EXIT
    (set -e; undo) >&2
    [ $? = 0 ] || { echo "the lab could not undo the fault" >&2; exit 125; }
    exit $status
}
trap back EXIT
trap 'exit 143' TERM
if [ "$0" ]; then
    lab-run --stdin --user nobody --memlock "$0" -- "$@"
else
    "$@"
fi
"#;

/// The script of that name.
macro_rules! fault {
    ($name:literal) => {
        include_str!(concat!("faults/", $name, ".sh"))
    };
}
pub(crate) use fault;
