//! The nouns of the contract, from the options `noun` and `state` in
//! `proto/tinwright/common/v1/options.proto`.

use std::time::Duration;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NounInfo {
    /// The name of the message.
    pub message: &'static str,
    /// The name of one object in texts for people.
    pub singular: &'static str,
    /// The plural, as in the names of calls and metrics, such as `power_jobs`.
    pub plural: &'static str,
    /// The service that stores the objects; empty if each service stores some.
    pub owner: &'static str,
    /// True if changes are recorded as events.
    pub has_events: bool,
    /// The states of its lifecycle; empty if it has none.
    pub states: &'static [StateInfo],
}

/// A state of a lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateInfo {
    /// The name in documents and logs, such as `deprovision_failed`.
    pub word: &'static str,
    /// True if no transition leaves the state.
    pub is_final: bool,
    /// The maximum length of a normal stay in the state. None: there is no maximum.
    pub max_stay: Option<Duration>,
}

/// Defines [`NOUNS`].
macro_rules! noun_table {
    ($(
        $message:literal, $singular:literal, $plural:literal, $owner:literal, $has_events:literal,
        [$($word:literal $is_final:literal $max_minutes:literal,)*];
    )*) => {
        /// The nouns of the contract.
        pub static NOUNS: &[NounInfo] = &[$(NounInfo {
            message: $message,
            singular: $singular,
            plural: $plural,
            owner: $owner,
            has_events: $has_events,
            states: &[$(StateInfo {
                word: $word,
                is_final: $is_final,
                max_stay: minutes($max_minutes),
            }),*],
        }),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/noun_table.rs"));

/// Returns the noun with this name of one object.
pub fn find(singular: &str) -> Option<&'static NounInfo> {
    NOUNS.iter().find(|noun| noun.singular == singular)
}

impl NounInfo {
    /// Returns the state with this name.
    pub fn state(&self, word: &str) -> Option<&'static StateInfo> {
        self.states.iter().find(|state| state.word == word)
    }
}

const fn minutes(minutes: u64) -> Option<Duration> {
    match minutes {
        0 => None,
        minutes => Some(Duration::from_secs(60 * minutes)),
    }
}
