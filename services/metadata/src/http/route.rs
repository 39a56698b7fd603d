//! Which of the service's few faces a path is.

use axum::http::Method;
use axum::response::Response;

use super::refusal::Refusal;
use super::{answer, phone_home};
use crate::contents;

/// A face of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The installed system is up.
    PhoneHome,
    /// A system tells how far it is.
    Events,
    /// A session token is wanted.
    Token,
    /// The same under a dated version, where EC2 has none.
    DatedToken,
    /// How the service is.
    Health,
    /// Where an OpenStack instance may leave its password.
    Password,
    /// Everything else.
    Tree,
}

impl Route {
    /// The face at `path`.
    pub(super) fn of(path: &[&str]) -> Self {
        match path {
            ["phone-home"] | ["latest" | "2009-04-04", "meta-data", "phone-home"] => {
                Self::PhoneHome
            }
            ["events"] | ["phone-home", "events"] => Self::Events,
            ["latest", "api", "token"] => Self::Token,
            ["_packet", "healthcheck" | "version"] => Self::Health,
            ["openstack", _, "password"] => Self::Password,
            [_, "api", "token"] => Self::DatedToken,
            _ => Self::Tree,
        }
    }

    /// Whether it does more than tell: what happens there is worth a word as a rule.
    pub(super) fn acts(self) -> bool {
        match self {
            Self::PhoneHome | Self::Events | Self::Token | Self::DatedToken => true,
            Self::Health | Self::Password | Self::Tree => false,
        }
    }

    /// What requests to this face, for `path`, are counted as.
    pub(super) fn label(self, path: &[&str]) -> &'static str {
        match self {
            Self::PhoneHome => "phone_home",
            Self::Events => "events",
            Self::Token | Self::DatedToken => "token",
            Self::Health => "health",
            Self::Tree | Self::Password => match path {
                [_, "user-data"] => "user_data",
                [_, "meta-data", ..] => "meta_data",
                [_, "dynamic", ..] => "dynamic",
                ["nocloud", ..] => "nocloud",
                ["openstack", ..] => "openstack",
                ["metadata" | "userdata"] => "json",
                _ => "other",
            },
        }
    }

    /// Refuses what is no method of this face. OPTIONS is none anywhere: no page of another site has business here.
    pub(super) fn admit(self, method: &Method) -> Result<(), Refusal> {
        let reads = method == Method::GET || method == Method::HEAD;
        let (good, allowed) = match self {
            Self::PhoneHome | Self::Events => (method == Method::POST, "POST"),
            Self::Token | Self::DatedToken => (method == Method::PUT, "PUT"),
            Self::Tree | Self::Health => (reads, "GET, HEAD"),
            Self::Password => (reads || method == Method::POST, "GET, HEAD, POST"),
        };
        if good { Ok(()) } else { Err(Refusal::Method(allowed)) }
    }

    /// The answer to an address nobody has. Who calls home is thanked even so: old clients try until they are.
    pub(super) fn for_nobody(self) -> Result<Response, Refusal> {
        match self {
            Self::PhoneHome | Self::Events => Ok(answer::json(phone_home::THANKS)),
            Self::Token | Self::DatedToken | Self::Health | Self::Password | Self::Tree => {
                Err(Refusal::NotFound)
            }
        }
    }
}

/// True if the service itself answers at `path`, so that no endpoint of the site may be there.
pub fn is_reserved_path(path: &[&str]) -> bool {
    contents::is_ours(path) || Route::of(path) != Route::Tree
}
