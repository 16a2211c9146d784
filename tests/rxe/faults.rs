//! Faults that are set up in a VM: one script each, in the folder `faults`.

use linkproof_tests::lab::{Lab, Vm};

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

/// The script of that name.
macro_rules! fault {
    ($name:literal) => {
        include_str!(concat!("faults/", $name, ".sh"))
    };
}
pub(crate) use fault;
