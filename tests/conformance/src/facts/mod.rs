//! The facts, a file for each topic.

mod channels;
mod completions;
mod creation;
mod device;
mod events;
mod extended;
mod flush;
mod gids;
mod keys;
mod limits;
mod memory;
mod messages;
mod posting;
mod processes;
mod query;
mod queues;
mod ranges;
mod receives;
mod teardown;
mod transitions;
mod unreachable;
mod writes;

use crate::fact::Fact;

/// Every fact.
pub(crate) fn all() -> impl Iterator<Item = &'static Fact> {
    const TOPICS: &[&[Fact]] = &[
        device::FACTS,
        gids::FACTS,
        memory::FACTS,
        queues::FACTS,
        channels::FACTS,
        creation::FACTS,
        teardown::FACTS,
        transitions::FACTS,
        ranges::FACTS,
        query::FACTS,
        posting::FACTS,
        limits::FACTS,
        completions::FACTS,
        writes::FACTS,
        messages::FACTS,
        receives::FACTS,
        keys::FACTS,
        flush::FACTS,
        unreachable::FACTS,
        events::FACTS,
        extended::FACTS,
        processes::FACTS,
    ];
    TOPICS.iter().flat_map(|facts| facts.iter())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::differences::DIFFERENCES;

    #[test]
    fn names_are_unique_and_each_difference_names_a_fact() {
        let mut names = HashSet::new();
        for fact in all() {
            assert!(names.insert(fact.full_name()), "{} is there twice", fact.full_name());
        }
        for difference in DIFFERENCES {
            assert!(names.contains(difference.fact), "{} is no fact", difference.fact);
        }
    }
}
