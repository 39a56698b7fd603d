//! A tenant of the site: its caller uploads an image of its own, and orders machines by their location.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use tinwright::instance::v1::Placement;

use crate::provision::Operator;
use crate::server::read_identity;
use crate::site::Site;

/// A tenant, and the certificate of its caller.
#[derive(Debug)]
pub struct Tenant {
    /// Its caller.
    pub operator: Operator,
    /// Name of the tenant, and of the location in which it orders machines.
    pub name: String,
    /// The directory with the caller's certificate.
    secrets: PathBuf,
}

impl Tenant {
    /// Creates the tenant `name`, and issues a certificate for its caller.
    pub async fn create(site: &Site, name: &str) -> anyhow::Result<Self> {
        let secrets = site.lab.path(name);
        std::fs::create_dir(&secrets)?;
        setup::run(site.server.cli().args(["tenant", "create", name]))?;
        let mut issue = site.server.cli();
        issue.args(["identity", "issue", "--role", "operator", "--tenant", name]);
        setup::run(issue.arg("--out").arg(secrets.join("client")))?;
        std::fs::rename(secrets.join("client-ca.pem"), secrets.join("ca.pem"))?;
        let identity = read_identity(&secrets, "client")?;
        let operator = Operator::new(site.server.channel_as(identity).await?);
        Ok(Self { operator, name: name.to_owned(), secrets })
    }

    /// Returns the `tinwright` command of the tenant's caller.
    pub fn cli(&self, site: &Site) -> Command {
        let mut command = site.server.cli();
        command.env_remove("TINWRIGHT_DATA").env("TINWRIGHT_SECRETS", &self.secrets);
        command
    }

    /// Returns the choice of a machine in the location with the tenant's name.
    pub fn placement(&self) -> Placement {
        Placement { location_id: self.name.clone(), ..Placement::default() }
    }

    /// Creates the location with the tenant's name. Returns its id.
    pub async fn create_location(&self, site: &Site) -> anyhow::Result<String> {
        site.operator.create_location(&self.name).await.context("creating the location")
    }
}
