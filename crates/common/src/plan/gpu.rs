//! What a plan says of GPU memory: whose, and how the bytes come to it.

use serde::{Deserialize, Serialize};

use super::checks::usage;
use super::{Plan, Role, Traffic, Transport};
use crate::cuda::GpuName;
use crate::error::Result;
use crate::memory::{GpuPath, MemoryRequest};

/// How an end comes to its GPU's memory, as it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum GpuPathRequest {
    /// dmabuf, then peermem; staged only with --allow-staged, and over TCP, which has no other
    #[default]
    Auto,
    /// GPUDirect: the GPU's driver exports the memory as a dma-buf, which the adapter's driver maps
    Dmabuf,
    /// GPUDirect: a dma-buf that is mapped over PCIe, where a GPU has another link to the host's memory (Grace)
    DmabufPcie,
    /// GPUDirect: the adapter's driver asks a peer memory module (nvidia-peermem)
    Peermem,
    /// The GPU copies to and from host memory, which goes over the network
    Staged,
}

/// The GPU memory of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPlan {
    /// The client's GPU; absent where its bytes lie in host memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client: Option<GpuName>,
    /// The server's GPU; absent where its bytes lie in host memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server: Option<GpuName>,
    /// How the bytes come to it.
    pub path: GpuPathRequest,
    /// Whether `auto` may end with staging.
    pub allow_staged: bool,
}

impl GpuPlan {
    /// The ways that are tried over `transport`, in this order.
    pub fn paths(&self, transport: Transport) -> &'static [GpuPath] {
        match (transport, self.path, self.allow_staged) {
            (Transport::Tcp, _, _) | (_, GpuPathRequest::Staged, _) => &[GpuPath::Staged],
            (_, GpuPathRequest::Auto, false) => &[GpuPath::Dmabuf, GpuPath::Peermem],
            (_, GpuPathRequest::Auto, true) => &[GpuPath::Dmabuf, GpuPath::Peermem, GpuPath::Staged],
            (_, GpuPathRequest::Dmabuf, _) => &[GpuPath::Dmabuf],
            (_, GpuPathRequest::DmabufPcie, _) => &[GpuPath::DmabufPcie],
            (_, GpuPathRequest::Peermem, _) => &[GpuPath::Peermem],
        }
    }
}

impl Plan {
    /// The GPU whose memory `role` uses; `None` for host memory.
    pub fn gpu_of(&self, role: Role) -> Option<&GpuName> {
        let gpu = self.gpu.as_ref()?;
        match role {
            Role::Client => gpu.client.as_ref(),
            Role::Server => gpu.server.as_ref(),
        }
    }

    pub(super) fn check_gpu(&self) -> Result<()> {
        let Some(gpu) = &self.gpu else { return Ok(()) };
        if gpu.client.is_none() && gpu.server.is_none() {
            return Err(usage(
                "--cuda-path and --allow-staged are for GPU memory, and no end has any".into(),
            )
            .hint("--use-cuda, or --memory cuda:N and --peer-memory cuda:N"));
        }
        if self.memory != MemoryRequest::Host {
            return Err(usage("--hugepages are pages of the host, and this run has GPU memory".into()));
        }
        if self.transport == Transport::Tcp
            && !matches!(gpu.path, GpuPathRequest::Auto | GpuPathRequest::Staged)
        {
            let what = "over TCP the bytes of a GPU are staged through host memory: sockets take no others";
            return Err(usage(what.into()).hint("leave --cuda-path out, or measure over RDMA"));
        }
        let may_stage = gpu.paths(self.transport).contains(&GpuPath::Staged);
        if may_stage && self.transport == Transport::Rdma && self.traffic == Traffic::Bidirectional {
            let what = "staged RDMA writes go in one direction: the other way their counts come back";
            return Err(
                usage(what.into()).hint("leave --bidirectional out, or measure it over --transport tcp")
            );
        }
        if self.queue_pair.inline_fixed && self.queue_pair.inline_bytes > 0 {
            let what = "--inline-size has the processor copy the message, which it can't from GPU memory";
            return Err(usage(what.into()).hint("leave --inline-size out"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    fn with(gpu: GpuPlan) -> Plan {
        Plan { gpu: Some(gpu), ..plan() }
    }

    fn both(path: GpuPathRequest) -> GpuPlan {
        let name = Some(GpuName::Ordinal(0));
        GpuPlan { client: name.clone(), server: name, path, allow_staged: false }
    }

    #[test]
    fn auto_never_ends_with_staging_unless_that_is_allowed() {
        use GpuPath::{Dmabuf, Peermem, Staged};
        let auto = both(GpuPathRequest::Auto);
        assert_eq!(auto.paths(Transport::Rdma), [Dmabuf, Peermem]);
        assert_eq!(
            GpuPlan { allow_staged: true, ..auto.clone() }.paths(Transport::Rdma),
            [Dmabuf, Peermem, Staged]
        );
        assert_eq!(auto.paths(Transport::Tcp), [Staged]);
        assert_eq!(both(GpuPathRequest::Peermem).paths(Transport::Rdma), [Peermem]);
        assert_eq!(both(GpuPathRequest::DmabufPcie).paths(Transport::Rdma), [GpuPath::DmabufPcie]);
    }

    #[test]
    fn what_can_not_be_is_refused_with_the_option() {
        assert!(with(both(GpuPathRequest::Auto)).check().is_ok());
        let refused = |plan: Plan| plan.check().unwrap_err().what;
        let tcp = Plan { transport: Transport::Tcp, ..with(both(GpuPathRequest::Dmabuf)) };
        assert!(refused(tcp).contains("over TCP"));
        let huge = Plan { memory: MemoryRequest::HostHuge, ..with(both(GpuPathRequest::Auto)) };
        assert!(refused(huge).contains("--hugepages"));
        let mut inline = with(both(GpuPathRequest::Auto));
        (inline.queue_pair.inline_bytes, inline.queue_pair.inline_fixed) = (64, true);
        assert!(refused(inline).contains("--inline-size"));
        let nobody = GpuPlan { client: None, server: None, ..both(GpuPathRequest::Staged) };
        assert!(refused(with(nobody)).contains("no end has any"));
    }

    #[test]
    fn each_end_has_its_own() {
        let mixed = with(GpuPlan { server: None, ..both(GpuPathRequest::Auto) });
        assert_eq!(mixed.gpu_of(Role::Client), Some(&GpuName::Ordinal(0)));
        assert_eq!((mixed.gpu_of(Role::Server), plan().gpu_of(Role::Client)), (None, None));
    }
}
