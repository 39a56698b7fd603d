//! The routes of the service.

use axum::http::Method;
use axum::response::Response;

use super::refusal::Refusal;
use super::response;
use crate::contents;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The installed system reports that it is up.
    PhoneHome,
    /// A system reports its progress.
    Events,
    /// Creates a session token.
    Token,
    /// The same under a dated version, where EC2 has none.
    DatedToken,
    /// The health of the service.
    Health,
    /// An OpenStack instance may post its password.
    Password,
    /// All documents.
    Tree,
}

impl Route {
    /// Returns the route of `path`.
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

    /// True if it does more than serve a document: such requests are usually logged.
    pub(super) fn has_effects(self) -> bool {
        matches!(self, Self::PhoneHome | Self::Events | Self::Token | Self::DatedToken)
    }

    /// Returns the label for `path` in metrics.
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

    /// Refuses other methods than the route's. OPTIONS is never allowed: pages of other sites must not read from here.
    pub(super) fn check_method(self, method: &Method) -> Result<(), Refusal> {
        let allowed = match self {
            Self::PhoneHome | Self::Events => "POST",
            Self::Token | Self::DatedToken => "PUT",
            Self::Tree | Self::Health => "GET, HEAD",
            Self::Password => "GET, HEAD, POST",
        };
        match allowed.split(", ").any(|name| name == method.as_str()) {
            true => Ok(()),
            false => Err(Refusal::Method(allowed)),
        }
    }

    /// Returns the response to an address that no machine has. Phone-home calls succeed even so: old clients repeat them until
    /// they do.
    pub(super) fn response_to_unknown_caller(self) -> Result<Response, Refusal> {
        match self {
            Self::PhoneHome | Self::Events => Ok(response::json("{}")),
            Self::Token | Self::DatedToken | Self::Health | Self::Password | Self::Tree => {
                Err(Refusal::NotFound)
            }
        }
    }
}

/// True if the service itself answers at `path`, so that no custom endpoint may be there.
pub fn is_reserved_path(path: &[&str]) -> bool {
    contents::is_reserved(path) || Route::of(path) != Route::Tree
}
