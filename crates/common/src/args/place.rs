//! Where an end runs: its cores and its NUMA node.

use clap::Args;

use crate::affinity::{Cores, Numa, Wish};

/// Cores and NUMA node of this end; each end has its own.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "This end")]
pub struct PlaceArgs {
    /// Cores to measure on, for instance 2 or 2-5,8 [default: those of the device's NUMA node, where it has one]
    #[arg(long, value_name = "LIST", value_parser = Cores::parse)]
    pub cores: Option<Cores>,
    /// NUMA node for the memory, and for the threads unless --cores says where; none binds nothing [default: the device's]
    #[arg(long, value_name = "N|none", value_parser = Numa::parse)]
    pub numa: Option<Numa>,
}

impl PlaceArgs {
    /// What they say.
    pub fn wish(&self) -> Wish {
        Wish { cores: self.cores.clone(), numa: self.numa }
    }
}
