//! Lifecycle states, from the option `state` in `proto/tinwright/common/v1/options.proto`.
//!
//! A state that only a newer server knows is not final, and may last.

use std::time::Duration;

/// Implements the functions of enums of states, and of the messages that can end.
macro_rules! states {
    ($(
        $states:ty, $prefix:literal,
        [$($state:ident $is_final:literal $max_minutes:literal,)*], [$($message:ty,)*];
    )*) => {$(
        impl $states {
            /// Returns the state's name in documents and logs, such as `deprovision_failed`.
            pub fn word(self) -> String {
                self.as_str_name().trim_start_matches($prefix).to_ascii_lowercase()
            }

            /// True if no transition leaves the state.
            pub fn is_terminal(self) -> bool {
                match self {
                    Self::Unspecified => false,
                    $(Self::$state => $is_final,)*
                }
            }

            /// Returns the maximum length of a normal stay in the state. None: there is no maximum.
            pub fn max_stay(self) -> Option<Duration> {
                let minutes: u64 = match self {
                    Self::Unspecified => 0,
                    $(Self::$state => $max_minutes,)*
                };
                (minutes > 0).then(|| Duration::from_secs(60 * minutes))
            }
        }

        $(
            impl $message {
                /// True if the object has ended: no transition leaves its state.
                pub fn is_terminal(&self) -> bool {
                    self.state().is_terminal()
                }
            }
        )*
    )*};
}

include!(concat!(env!("OUT_DIR"), "/states.rs"));

#[cfg(test)]
mod tests {
    use crate::instance::v1::State;
    use crate::workflow::v1::{Action, ActionState};

    #[test]
    fn a_state_has_the_name_the_end_and_the_maximum_of_its_options() {
        assert_eq!(State::DeprovisionFailed.word(), "deprovision_failed");
        assert_eq!(State::Reinstalling.max_stay().unwrap().as_secs(), 4 * 60 * 60);
        assert_eq!(State::Active.max_stay(), None);
        let action = |state: ActionState| Action { state: state.into(), ..Action::default() };
        assert!(action(ActionState::NotRun).is_terminal());
        assert!(!action(ActionState::Leased).is_terminal());
        assert!(!Action { state: 99, ..Action::default() }.is_terminal(), "of a newer server");
    }
}
