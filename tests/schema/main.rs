//! The schema is exactly what the tools write: every field, every enum's values, and nothing else.

use std::collections::BTreeSet;

use linkproof_common::affinity::{BoundBy, Unbound};
use linkproof_common::clock::ClockSource;
use linkproof_common::environment::Host;
use linkproof_common::error::{Error, ErrorKind, Origin};
use linkproof_common::gid::{GidType, LinkLayer};
use linkproof_common::memory::GpuPath;
use linkproof_common::node::Distance;
use linkproof_common::plan::{GpuPathRequest, RoundLength, Traffic, Transport};
use linkproof_common::report::{Document, Guarantee, INTERVAL_SCHEMA};
use linkproof_common::validate::Direction;
use linkproof_tests::schema;
use serde::Serialize;
use serde_json::{Value, json};

mod check;
mod collectives;
mod sample;

/// Serde fills these in when they are absent, but the tools always write them.
const ALWAYS_WRITTEN: &[&str] = &["origin"];

fn samples() -> [Value; 5] {
    let value = |document| serde_json::to_value(document).expect("JSON");
    let [rdma, tcp, latency, perftest] =
        [sample::full_rdma(), sample::full_tcp(), sample::full_latency(), sample::full_perftest()].map(value);
    [rdma, tcp, latency, perftest, serde_json::to_value(collectives::full()).expect("JSON")]
}

/// Whether the tool that wrote a document like `value` could have written `value`.
fn is_readable(value: &Value) -> bool {
    if value["tool"] == "coll-perf" {
        serde_json::from_value::<coll_perf::report::Document>(value.clone()).is_ok()
    } else {
        serde_json::from_value::<Document>(value.clone()).is_ok()
    }
}

/// The JSON pointers of all objects in `value`, itself included.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.push(at.to_owned());
            fields.iter().for_each(|(name, value)| objects(value, &format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| objects(value, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

fn objects_of(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    objects(value, "", &mut found);
    found
}

fn fields_at<'a>(value: &'a mut Value, at: &str) -> &'a mut serde_json::Map<String, Value> {
    value.pointer_mut(at).and_then(Value::as_object_mut).expect("the pointer leads to an object")
}

/// All properties that the schema below `node` names, each with its own schema.
fn properties<'a>(node: &'a Value, found: &mut Vec<(&'a str, &'a Value)>) {
    match node {
        Value::Object(fields) => {
            if let Some(Value::Object(named)) = fields.get("properties") {
                found.extend(named.iter().map(|(name, schema)| (name.as_str(), schema)));
            }
            let inner =
                fields.iter().filter(|(keyword, _)| !["if", "then", "else"].contains(&keyword.as_str()));
            inner.for_each(|(_, node)| properties(node, found));
        }
        Value::Array(items) => items.iter().for_each(|node| properties(node, found)),
        _ => {}
    }
}

fn schema_properties() -> Vec<(&'static str, &'static Value)> {
    let mut found = Vec::new();
    properties(schema::document(), &mut found);
    found
}

#[test]
fn documents_with_everything_in_them_are_valid() {
    samples().iter().for_each(schema::validate);
}

#[test]
fn a_document_with_nothing_in_it_is_valid() {
    let mut document = Document::begin("write-bw", "0.1.0");
    document.conclude(Some(Error::new(ErrorKind::Usage, "x")));
    schema::validate(&serde_json::to_value(document).expect("JSON"));
}

#[test]
fn a_field_that_nobody_knows_is_refused_everywhere() {
    for sample in samples() {
        for at in objects_of(&sample).iter().filter(|at| !at.ends_with("/moved")) {
            let mut changed = sample.clone();
            fields_at(&mut changed, at).insert("surprise".to_owned(), json!(1));
            assert!(!schema::errors(&changed).is_empty(), "the schema takes {at}/surprise");
        }
    }
}

#[test]
fn a_field_is_optional_in_the_schema_exactly_where_the_tools_may_leave_it_out() {
    for sample in samples() {
        for at in objects_of(&sample).iter().filter(|at| !at.ends_with("/moved")) {
            let names: Vec<String> =
                sample.pointer(at).and_then(Value::as_object).expect("an object").keys().cloned().collect();
            for name in names.iter().filter(|name| !["checked_bytes", "wrong_bytes"].contains(&name.as_str()))
            {
                let mut changed = sample.clone();
                fields_at(&mut changed, at).remove(name);
                let optional = is_readable(&changed) && !ALWAYS_WRITTEN.contains(&name.as_str());
                assert_eq!(schema::errors(&changed).is_empty(), optional, "{at}/{name}");
            }
        }
    }
}

#[test]
fn every_property_of_the_schema_is_one_that_the_tools_write() {
    let mut written = BTreeSet::new();
    let samples = samples();
    for sample in &samples {
        for at in objects_of(sample) {
            let fields = sample.pointer(&at).and_then(Value::as_object).expect("an object");
            written.extend(fields.keys().map(String::as_str));
        }
    }
    // The other way to end a round; the samples have one each.
    let unknown: Vec<&str> = schema_properties()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| !written.contains(name))
        .collect();
    assert!(unknown.is_empty(), "the schema names what no tool writes: {unknown:?}");
}

#[test]
fn every_property_says_what_it_is() {
    for (name, schema) in schema_properties() {
        let text = schema["description"].as_str().unwrap_or_default();
        assert!(text.len() > 10 && text.ends_with('.'), "{name}: {schema}");
    }
}

/// The values of the enum at `pointer` in the schema.
fn values_at(pointer: &str) -> BTreeSet<String> {
    let values =
        schema::document().pointer(pointer).and_then(Value::as_array).expect("an enum in the schema");
    values.iter().map(|value| value.as_str().expect("a word").to_owned()).collect()
}

fn written_as<T: Serialize>(values: &[T]) -> BTreeSet<String> {
    let word = |value: &T| serde_json::to_value(value).expect("JSON").as_str().expect("a word").to_owned();
    values.iter().map(word).collect()
}

#[test]
fn every_error_code_is_in_the_schema_and_no_other() {
    assert_eq!(values_at("/$defs/failure/properties/code/enum"), written_as(ErrorKind::ALL));
}

#[test]
fn the_other_enums_are_spelled_as_the_tools_write_them() {
    let of = |name: &str| values_at(&format!("/$defs/{name}/enum"));
    assert_eq!(
        of("peer/properties/without/items"),
        written_as(&[Guarantee::Validation, Guarantee::PeerDocument, Guarantee::PeerError])
    );
    assert_eq!(of("failure/properties/origin"), written_as(&[Origin::Local, Origin::Peer]));
    assert_eq!(of("plan/properties/transport"), written_as(&[Transport::Rdma, Transport::Tcp]));
    assert_eq!(
        of("plan/properties/traffic"),
        written_as(&[Traffic::Unidirectional, Traffic::Bidirectional, Traffic::PingPong])
    );
    assert_eq!(
        of("round/properties/direction"),
        written_as(&[Direction::ClientToServer, Direction::ServerToClient])
    );
    for half in ["thread_binding", "memory_binding"] {
        let words = written_as(&[BoundBy::Device, BoundBy::Option, BoundBy::None]);
        assert_eq!(of(&format!("{half}/properties/bound_by")), words);
    }
    assert_eq!(of("clock/properties/source"), written_as(&[ClockSource::Tsc, ClockSource::ClockMonotonic]));
    use Unbound::{Asked, Gpu, Inherited, NoDevice, NoNode, NotAllowed, Refused};
    assert_eq!(
        values_at("/$defs/unbound/enum"),
        written_as(&[Asked, NoDevice, NoNode, NotAllowed, Inherited, Refused, Gpu])
    );
    let distances = Distance::ALL.map(Distance::word).map(str::to_owned);
    assert_eq!(of("gpu_use/properties/distance"), BTreeSet::from(distances));
    use GpuPathRequest::{Auto, Dmabuf, DmabufPcie, Peermem, Staged};
    assert_eq!(of("gpu_path_request"), written_as(&[Auto, Dmabuf, DmabufPcie, Peermem, Staged]));
    let paths = [GpuPath::Dmabuf, GpuPath::DmabufPcie, GpuPath::Peermem, GpuPath::Staged];
    assert_eq!(of("gpu_path"), written_as(&paths));
    assert_eq!(of("gid/properties/type"), written_as(&[GidType::Ib, GidType::RoceV1, GidType::RoceV2]));
    assert_eq!(
        of("rdma_end/properties/link_layer"),
        written_as(&[LinkLayer::InfiniBand, LinkLayer::Ethernet, LinkLayer::Unspecified])
    );
}

#[test]
fn a_verdict_cannot_be_good_with_failures_or_bad_without() {
    let [mut good, ..] = samples();
    good["verdict"]["ok"] = json!(true);
    assert!(!schema::errors(&good).is_empty());
    good["verdict"]["failures"] = json!([]);
    schema::validate(&good);
    good["verdict"]["ok"] = json!(false);
    assert!(!schema::errors(&good).is_empty());
}

#[test]
fn numbers_are_numbers_and_all_errors_are_told() {
    let [mut document, ..] = samples();
    document["results"][0]["msg_rate_mpps"] = Value::Null;
    document["plan"]["qps"] = json!("1");
    document["started"] = json!("yesterday");
    let errors = schema::errors(&document).join("\n");
    for place in ["/results/0/msg_rate_mpps", "/plan/qps", "/started"] {
        assert!(errors.contains(place), "{place} is not among\n{errors}");
    }
}

#[test]
fn every_length_of_a_round_is_valid() {
    for length in [RoundLength::Iterations(5000), RoundLength::Seconds(0.5), RoundLength::UntilStopped] {
        let mut document = sample::full_tcp();
        document.plan.as_mut().expect("a plan").round_length = length;
        schema::validate(&serde_json::to_value(document).expect("JSON"));
    }
}

#[test]
fn an_interval_takes_no_field_that_nobody_knows_and_lacks_none_that_is_always_there() {
    let line = json!({
        "schema": INTERVAL_SCHEMA, "tool": "write-lat", "began": "2026-11-29T17:03:21.123Z", "size_bytes": 2,
        "round": 0, "direction": "client_to_server", "begin_ns": 0, "elapsed_ns": 1_000_000_000, "messages": 5,
        "latency": {"t_typical_usec": 1.5, "p99_usec": 2.5, "t_max_usec": 3.5},
    });
    assert!(schema::interval_errors(&line).is_empty());
    for at in objects_of(&line) {
        let mut changed = line.clone();
        fields_at(&mut changed, &at).insert("surprise".to_owned(), json!(1));
        assert!(!schema::interval_errors(&changed).is_empty(), "the schema takes {at}/surprise");
    }
    for name in line.as_object().expect("an object").keys() {
        let mut changed = line.clone();
        fields_at(&mut changed, "").remove(name);
        assert_eq!(schema::interval_errors(&changed).is_empty(), name == "latency", "{name}");
    }
}

#[test]
fn this_machine_is_a_valid_host() {
    use linkproof_common::host::HostFiles;
    use linkproof_common::plan::Role;
    let mut document = sample::full_tcp();
    document.hosts = vec![Host::this_machine(Role::Client, "0.1.0", &HostFiles::this_machine())];
    schema::validate(&serde_json::to_value(document).expect("JSON"));
}
