//! Options of the connection to a cluster.

use std::fmt;

/// The cluster's endpoints, our prefix, TLS and login.
#[derive(Clone, Debug)]
pub struct Options {
    /// The client addresses of its members, such as `http://127.0.0.1:2379`; they are tried in turn.
    pub endpoints: Vec<String>,
    /// The prefix of every key, at most [`MAX_PREFIX_BYTES`](super::MAX_PREFIX_BYTES) long: the longest commits with a longer one
    /// exceed etcd's limit.
    pub prefix: String,
    /// Only the keys that begin with this text, after the prefix, are followed; empty for all. A user of the cluster that may read
    /// and write these keys only can follow no others.
    pub followed: String,
    /// For endpoints that begin with `https`.
    pub tls: Option<Tls>,
    /// For a cluster with authentication switched on.
    pub login: Option<Login>,
}

/// The authority to trust, and the client certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificates (PEM) of the authorities that sign the members'.
    pub authority: String,
    /// The client certificate, if the cluster requires one.
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
