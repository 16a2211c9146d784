//! The RDMA port of a rank. Long names only: nccl-tests has the letters of write-bw for other things.

use clap::Args;
use linkproof_common::device::Library;
use linkproof_common::error::{Error, ErrorKind, Result};

use crate::backend::host::rdma::PortWish;
use crate::plan::Transport;

/// What is asked for; each rank may ask for another.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "RDMA (--transport rdma)")]
pub struct PortArgs {
    /// RDMA device to use [default: the first with an ACTIVE port]
    #[arg(long, visible_alias = "device", value_name = "DEV")]
    pub ib_dev: Option<String>,
    /// Use a device in software, to try it without an adapter: all ranks on one machine, and no speed is a link's
    #[arg(long)]
    pub soft_device: bool,
    /// Port of the device [default: its first ACTIVE port]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub ib_port: Option<u8>,
    /// Index into the GID table [default: chosen by property to match each other rank]
    #[arg(long, value_name = "N")]
    pub gid_index: Option<u32>,
}

impl PortArgs {
    /// What they say.
    pub fn wish(&self) -> PortWish {
        PortWish {
            library: if self.soft_device { Library::Softnic } else { Library::Ibverbs },
            name: self.ib_dev.clone(),
            port_num: self.ib_port,
            gid_index: self.gid_index,
        }
    }

    /// Nothing else has an RDMA port.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the option.
    pub fn check(&self, transport: Option<Transport>) -> Result<()> {
        let given = [
            ("--ib-dev", self.ib_dev.is_some()),
            ("--soft-device", self.soft_device),
            ("--ib-port", self.ib_port.is_some()),
            ("--gid-index", self.gid_index.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) if transport != Some(Transport::Rdma) => Err(Error::new(
                ErrorKind::Usage,
                format!("{option} is about an RDMA port, and this run has none"),
            )
            .hint("--transport rdma; NCCL is told of its devices by NCCL_IB_HCA and NCCL_IB_GID_INDEX")),
            _ => Ok(()),
        }
    }
}
