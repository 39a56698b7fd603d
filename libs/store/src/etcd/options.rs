//! What is said of a cluster: where it is, whom to trust, who we are.

use std::fmt;

/// Where the cluster is, and which part of it is ours.
#[derive(Clone, Debug)]
pub struct Options {
    /// The client addresses of its members, such as `http://127.0.0.1:2379`; they are tried in turn.
    pub endpoints: Vec<String>,
    /// What every key begins with there; at most [`MAX_PREFIX_BYTES`](super::MAX_PREFIX_BYTES) bytes, or the longest commits grow too long for etcd.
    pub prefix: String,
    /// For endpoints that begin with `https`.
    pub tls: Option<Tls>,
    /// For a cluster with authentication switched on.
    pub login: Option<Login>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".into()],
            prefix: "/tinwright/".into(),
            tls: None,
            login: None,
        }
    }
}

/// Whom to trust, and how to be trusted.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificates (PEM) of the authorities that sign the members'.
    pub authority: String,
    /// Our own, where the cluster asks for one.
    pub identity: Option<Identity>,
}

/// A certificate with its key, both in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, with those between it and the authority.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// A user of the cluster's.
#[derive(Clone)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
