//! The view of secrets in responses.

/// Shows or hides the keys of RBD users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Secrets {
    /// They are empty, and so left out.
    #[default]
    Masked,
    /// They are as in the request.
    Shown,
}
