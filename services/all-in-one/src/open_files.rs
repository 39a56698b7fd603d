//! How many files and sockets this process may have open.
//!
//! Systems hand out a soft limit of 1024, which is for programs that use `select`: a rack of machines that load at once and
//! watches of other services are more than that. The hard limit is the administrator's word, and is left alone.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. Answers the limit that holds now; none is without end.
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let Rlimit { maximum, .. } = limit;
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        // What was allowed before still is.
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "no more files may be open");
            limit.current
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_may_be_open_as_the_administrator_allows() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let few =
            Rlimit { current: Some(maximum.map_or(4096, |most| most.min(4096) - 1)), maximum };
        setrlimit(Resource::Nofile, few).expect("less than before");
        assert_eq!(raise(), maximum);
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: maximum, maximum });
    }
}
