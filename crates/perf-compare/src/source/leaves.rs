//! The values of a part of a document whose fields need not be known, flat and bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Leaves of one part; a run of ten thousand ranks has some 130 000.
const MOST: usize = 1 << 18;
/// Values of a list that are shown.
const SHOWN: usize = 8;

/// Every value with the path that leads to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Leaves(Vec<(Vec<String>, String)>);

impl<'de> Deserialize<'de> for Leaves {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = Vec::new();
        Below { path: Vec::new(), found: &mut found }.deserialize(deserializer)?;
        Ok(Self(found))
    }
}

/// What is below a path.
struct Below<'a> {
    path: Vec<String>,
    found: &'a mut Vec<(Vec<String>, String)>,
}

impl Below<'_> {
    fn leaf<E: Error>(self, value: String) -> Result<(), E> {
        if self.found.len() == MOST {
            return Err(E::custom(format_args!("more than {MOST} values of conditions")));
        }
        self.found.push((self.path, value));
        Ok(())
    }

    fn inner(&mut self, name: String) -> Below<'_> {
        let mut path = self.path.clone();
        path.push(name);
        Below { path, found: self.found }
    }
}

impl<'de> DeserializeSeed<'de> for Below<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Below<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.leaf(if value { "yes" } else { "no" }.to_owned())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.leaf(value.to_string())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.leaf(value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.leaf(value.to_string())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.leaf(crate::words::printable(value))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        while items.next_element_seed(self.inner(index.to_string()))?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            // Names have no dots; one that has could be taken for another's.
            if name.contains('.') || name.len() > 64 {
                fields.next_value::<IgnoredAny>()?;
            } else {
                fields.next_value_seed(self.inner(name))?;
            }
        }
        Ok(())
    }
}

impl Leaves {
    /// The values below `part` by name, `part.client.gid.type`. An entry of a list is called by its role where it has
    /// one; the values of entries without are taken together.
    pub(super) fn named(&self, part: &str) -> BTreeMap<String, String> {
        let roles: BTreeMap<&str, &str> = self
            .0
            .iter()
            .filter(|(path, _)| path.len() == 2 && path[1] == "role")
            .map(|(path, value)| (path[0].as_str(), value.as_str()))
            .collect();
        let mut sets: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (path, value) in &self.0 {
            let first = path.first().map(String::as_str).and_then(|first| roles.get(first).copied());
            let rest = path.iter().map(String::as_str).skip(usize::from(first.is_some()));
            let is_index = |name: &&str| name.bytes().all(|byte| byte.is_ascii_digit());
            let names: Vec<&str> =
                [part].into_iter().chain(first).chain(rest.filter(|name| !is_index(name))).collect();
            sets.entry(names.join(".")).or_default().insert(value);
        }
        sets.into_iter().map(|(name, values)| (name, joined(&values))).collect()
    }
}

fn joined(values: &BTreeSet<&str>) -> String {
    let shown: Vec<&str> = values.iter().copied().take(SHOWN).collect();
    let more =
        if values.len() > SHOWN { format!(" and {} more", values.len() - SHOWN) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_called_by_their_role_and_lists_are_taken_together() {
        let text =
            r#"[{"role": "client", "kernel": "6.1", "nodes": [0, 1]}, {"role": "server", "kernel": "6.2"}]"#;
        let named = serde_json::from_str::<Leaves>(text).unwrap().named("hosts");
        assert_eq!(named["hosts.client.kernel"], "6.1");
        assert_eq!(named["hosts.client.nodes"], "0, 1");
        assert_eq!(named["hosts.server.kernel"], "6.2");
        let ranks: Vec<String> = (0..20).map(|rank| format!(r#"{{"name": "n{rank:02}"}}"#)).collect();
        let named = serde_json::from_str::<Leaves>(&format!("[{}]", ranks.join(","))).unwrap().named("hosts");
        assert_eq!(named["hosts.name"], "n00, n01, n02, n03, n04, n05, n06, n07 and 12 more");
    }

    #[test]
    fn too_many_values_are_refused() {
        let text = format!("[{}0]", "0,".repeat(MOST));
        assert!(serde_json::from_str::<Leaves>(&text).unwrap_err().to_string().contains("more than"));
    }
}
