//! The limit on open files and sockets of this process.
//!
//! The usual soft limit of 1024 is for programs that use `select`. A rack of machines that boot at once and the watches of other
//! services need more. The hard limit is set by the administrator and is not changed.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. Returns the limit in force; none is unlimited.
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let Rlimit { maximum, .. } = limit;
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        // The previous limit stays in force.
        Err(error) => {
            tracing::warn!(
                target: "tinwright",
                error = &error as &dyn std::error::Error,
                "the limit on open files was not raised"
            );
            limit.current
        }
    }
}

/// Returns the limit in force; none is unlimited.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_limit() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let few =
            Rlimit { current: Some(maximum.map_or(4096, |most| most.min(4096) - 1)), maximum };
        setrlimit(Resource::Nofile, few).expect("less than before");
        assert_eq!(raise(), maximum);
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: maximum, maximum });
    }
}
