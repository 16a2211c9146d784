//! The schema of a look at a node is exactly what rdma-check writes.

use linkproof_common::error::{Error, ErrorKind};
use linkproof_common::finding::{Code, Finding, examine};
use linkproof_common::host::HostFiles;
use linkproof_common::node::fixture::{self, Tree};
use linkproof_common::node::{Bond, CudaFacts, NcclLibrary, Node};
use linkproof_tests::schema::{check_errors, of_check};
use rdma_check::View;
use rdma_check::document::Document;
use serde_json::{Value, json};

use super::{fields_at, objects_of, properties};

fn node_of(tree: &Tree) -> Node {
    let folder = tempfile::tempdir_in(fixture::quick_folder()).expect("a folder");
    tree.write_to(folder.path()).expect("a tree");
    Node::read(&HostFiles::below(folder.path()))
}

fn value(document: &Document) -> Value {
    serde_json::to_value(document).expect("JSON")
}

/// A node of which everything is known.
fn full() -> Value {
    let mut node = node_of(&fixture::pod_without_node());
    let large = node_of(&fixture::pairs(1));
    node.gpus = large.gpus;
    node.gpu_driver = large.gpu_driver;
    node.topology = large.topology;
    node.system.rdma_shared_by_namespaces = Some(true);
    node.system.rdma_cgroup = Some("mlx5_0 hca_handle=2".to_owned());
    node.library_missing = Some("the RDMA library can't be used".to_owned());
    node.idle_adapters = node_of(
        &fixture::roce()
            .without("/sys/class/infiniband")
            .without("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/infiniband"),
    )
    .idle_adapters;
    node.idle_adapters[0].driver = Some("mlx5_core".to_owned());
    let device = &mut node.devices[0];
    device.software = Some("rxe".to_owned());
    device.refusal = Some("it can't be opened".to_owned());
    device.limits = Some(linkproof_common::device::DeviceLimits {
        max_qp: 1,
        max_qp_wr: 2,
        max_cq: 3,
        max_cqe: 4,
        max_mr: 5,
        max_mr_bytes: 6,
    });
    device.ports[0].active_mtu_bytes = Some(1024);
    for pci in [device.pci.as_mut().expect("a function"), &mut node.gpus[0].pci] {
        pci.driver = Some("mlx5_core".to_owned());
        pci.iommu = Some("identity".to_owned());
        pci.relaxed_ordering = Some(true);
        pci.acs_redirecting = vec!["0000:16:01.0".to_owned()];
    }
    node.netdevs[0].master = Some("bond0".to_owned());
    node.netdevs[0].bond = Some(Bond { mode: "802.3ad".to_owned(), members: vec!["eth2".to_owned()] });
    let driver = node.gpu_driver.as_mut().expect("a driver");
    driver.cuda = Some(CudaFacts { version: "13.0".to_owned(), gpus: 1, dma_buf: true });
    driver.cuda_refusal = Some("cuInit".to_owned());
    node.nccl.library =
        Some(NcclLibrary { file: Some("/usr/lib/libnccl.so.2".to_owned()), version: "2.27.3".to_owned() });
    node.nccl.settings.insert("NCCL_DEBUG".to_owned(), "INFO".to_owned());
    let findings = vec![Finding::new(Code::NodeMissing, "/dev/infiniband/uverbs0 is not there").on("mlx5_0")];
    let mut document = Document::of(node, findings, View::All, true);
    document.peer = Some(rdma_check::peer::Peer {
        name: "node-b".to_owned(),
        tool: "write-bw".to_owned(),
        version: "0.1.0".to_owned(),
        node: node_of(&fixture::infiniband()),
    });
    document.run = Some(rdma_check::run::Run {
        command: "write-bw".to_owned(),
        device: Some("mlx5_0".to_owned()),
        port_num: Some(1),
        gid_index: Some(3),
        pins_bytes: Some(65536),
        gpu: Some(crate::sample::gpu()),
        ranks: Some("the host backend, over RDMA, 2 ranks here".into()),
        failures: vec![Error::new(ErrorKind::Memlock, "x")],
    });
    document.root = Some("/tmp/tree".to_owned());
    let mut failure = Error::new(ErrorKind::Usage, "x").fact("a", 1).hint("y");
    failure.findings.push("memlock-low".to_owned());
    document.verdict.failures.push(failure);
    value(&document)
}

/// Maps have any names.
fn is_map(at: &str) -> bool {
    at.ends_with("/counters") || at.ends_with("/settings")
}

#[test]
fn looks_at_every_recorded_node_are_valid() {
    for (name, tree) in fixture::all() {
        let node = node_of(&tree);
        let findings = examine(&node);
        let errors = check_errors(&value(&Document::of(node, findings, View::All, false)));
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
    assert!(check_errors(&full()).is_empty(), "{:?}", check_errors(&full()));
    assert!(check_errors(&value(&Document::failed(Error::new(ErrorKind::Usage, "x")))).is_empty());
}

#[test]
fn a_look_takes_no_field_that_nobody_knows_and_lacks_none_that_is_always_there() {
    let full = full();
    for at in objects_of(&full).iter().filter(|at| !is_map(at)) {
        let mut changed = full.clone();
        fields_at(&mut changed, at).insert("surprise".to_owned(), json!(1));
        assert!(!check_errors(&changed).is_empty(), "the schema takes {at}/surprise");
        let names: Vec<String> = fields_at(&mut full.clone(), at).keys().cloned().collect();
        for name in names.iter().filter(|name| *name != "origin") {
            let mut changed = full.clone();
            fields_at(&mut changed, at).remove(name);
            let optional = serde_json::from_value::<Document>(changed.clone()).is_ok();
            assert_eq!(check_errors(&changed).is_empty(), optional, "{at}/{name}");
        }
    }
}

#[test]
fn every_property_of_a_look_is_written_and_says_what_it_is() {
    let full = full();
    let mut found = Vec::new();
    properties(of_check(), &mut found);
    for (name, schema) in found {
        let text = schema["description"].as_str().unwrap_or_default();
        assert!(text.len() > 10 && text.ends_with('.'), "{name}: {schema}");
        let is_written = objects_of(&full)
            .iter()
            .any(|at| full.pointer(at).is_some_and(|object| object.get(name).is_some()));
        assert!(is_written, "nothing writes {name}");
    }
}

#[test]
fn the_schema_knows_every_code() {
    let codes = of_check()["$defs"]["code"]["enum"].as_array().expect("a list");
    let written: Vec<Value> = Code::ALL.iter().map(|code| json!(code.name())).collect();
    assert_eq!(*codes, written);
}
