//! Options that take one name, a list of names, or `all`.

use std::str::FromStr;

use linkproof_common::error::{Error, ErrorKind, Result};

use crate::collective::{ALL, Collective, Kind};
use crate::dtype::DataType;
use crate::redop::RedOp;

/// Names separated by commas, each understood by `named`, none twice.
fn list<T: PartialEq + Copy>(
    text: &str,
    named: impl Fn(&str) -> std::result::Result<T, String>,
) -> std::result::Result<Vec<T>, String> {
    let mut values = Vec::new();
    for word in text.split(',') {
        let value = named(word)?;
        if values.contains(&value) {
            return Err(format!("{word} is there twice"));
        }
        values.push(value);
    }
    Ok(values)
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

/// `--op`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collectives {
    /// Every one that takes this number of ranks.
    All,
    /// These.
    These(Vec<Kind>),
}

impl Collectives {
    /// The collectives for `n_ranks` ranks.
    pub fn kinds(&self, n_ranks: u32) -> Vec<Kind> {
        let takes = |collective: &&&Collective| !collective.power_of_two || n_ranks.is_power_of_two();
        match self {
            Self::All => ALL.iter().filter(takes).map(|collective| collective.kind).collect(),
            Self::These(kinds) => kinds.clone(),
        }
    }
}

impl FromStr for Collectives {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let named = |word: &str| match (Collective::named(word), RedOp::named(word)) {
            (Some(collective), _) => Ok(collective.kind),
            // nccl-tests has a program for each collective, and --op for the reduction.
            (None, Some(_)) => Err(format!("{word} is a reduction: use -o {word}")),
            (None, None) => {
                let all = names(ALL.iter().map(|collective| collective.name));
                Err(format!("\"{word}\" is no collective; there are {all}, and all"))
            }
        };
        list(text, named).map(Self::These)
    }
}

/// `-d`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataTypes(pub Vec<DataType>);

impl FromStr for DataTypes {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "all" {
            return Ok(Self(DataType::ALL.to_vec()));
        }
        let known = || names(DataType::ALL.iter().map(|t| t.name()));
        let named = |word: &str| {
            DataType::named(word)
                .ok_or_else(|| format!("\"{word}\" is no type; there are {}, and all", known()))
        };
        list(text, named).map(Self)
    }
}

/// `-o`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedOps(pub Vec<RedOp>);

impl FromStr for RedOps {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "all" {
            return Ok(Self(RedOp::ALL.to_vec()));
        }
        let known = || names(RedOp::ALL.iter().map(|op| op.name()));
        let named = |word: &str| match (RedOp::named(word), word) {
            (Some(op), _) => Ok(op),
            (None, "mulsum") => {
                Err("mulsum is NCCL's sum with a factor, which the host backend does not have".to_owned())
            }
            (None, _) if Collective::named(word).is_some() => {
                Err(format!("{word} is a collective: use --op {word}"))
            }
            (None, _) => Err(format!("\"{word}\" is no reduction; there are {}, and all", known())),
        };
        list(text, named).map(Self)
    }
}

/// `-r`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Every rank in turn; `-1` in nccl-tests.
    All,
    /// These.
    These(Vec<u32>),
}

impl Roots {
    /// The roots among `n_ranks` ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where there is no such rank.
    pub fn ranks(&self, n_ranks: u32) -> Result<Vec<u32>> {
        match self {
            Self::All => Ok((0..n_ranks).collect()),
            Self::These(roots) => match roots.iter().find(|root| **root >= n_ranks) {
                Some(root) => Err(Error::new(
                    ErrorKind::Usage,
                    format!("there is no rank {root} to be the root: ranks are 0 to {}", n_ranks - 1),
                )),
                None => Ok(roots.clone()),
            },
        }
    }
}

impl FromStr for Roots {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if ["all", "-1"].contains(&text) {
            return Ok(Self::All);
        }
        list(text, |word| word.parse().map_err(|_| format!("\"{word}\" is no rank"))).map(Self::These)
    }
}
