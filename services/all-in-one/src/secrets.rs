//! The secrets of the site: the first process that owns records creates them, every other one needs a copy.

use anyhow::Context as _;
use runtime::access::EDGE_SERVICES;
use runtime::authority::SiteAuthority;

use crate::config::{Config, Storage};
use crate::{open_engine, site_identity};

/// Fails if the secrets of this site are missing, and the store has a site already: new secrets would not open it, and would be left behind.
pub(crate) async fn check_new_site(config: &Config) -> anyhow::Result<()> {
    if config.secrets().join("ca.pem").exists() || !config.split.uses_store() {
        return Ok(());
    }
    let has_site = match &config.store {
        Storage::Memory => false,
        Storage::Sled => has_store(config),
        Storage::Etcd(_) if !config.split.owns_records() => false,
        Storage::Etcd(_) => site_identity::is_marked(&*open_engine(config).await?).await?,
    };
    anyhow::ensure!(!has_site, site_identity::FOREIGN_STORE);
    Ok(())
}

/// Opens the site's secrets. The first process creates them; edges need a copy.
pub(crate) fn open_site(config: &Config) -> anyhow::Result<SiteAuthority> {
    let folder = config.secrets();
    let owns_records = config.split.owns_records();
    anyhow::ensure!(
        owns_records || folder.join("ca.pem").exists(),
        "{} has no ca.pem: copy site.key, service-key.pem, service.pem and ca.pem from a process that has them, or let `tinwright identity issue --role edge` write it, or --role door for a gateway, or --role builder for a builder",
        folder.display()
    );
    let site = SiteAuthority::open(&folder).context("opening the site's secrets")?;
    if site.is_edge() {
        check_services_of_edge(config)?;
        return Ok(site);
    }
    if site.is_door() {
        anyhow::ensure!(
            config.split.is_gateway_only(),
            "{} has the secrets of a door, which serves gateway only: set only",
            config.secrets().display()
        );
        return Ok(site);
    }
    if site.is_builder() {
        anyhow::ensure!(
            config.split.is_builder_only(),
            "{} has the secrets of a builder, which serves builder only: set only",
            config.secrets().display()
        );
        return Ok(site);
    }
    if owns_records {
        site.ensure_admin_certificate().context("writing the operator's certificate")?;
        site.ensure_document_key().context("writing the key for identity documents")?;
        site.ensure_service_certificate(&config.names())
            .context("writing the certificate of split-off processes")?;
    }
    Ok(site)
}

/// True if the data directory has a store.
pub(crate) fn has_store(config: &Config) -> bool {
    config.data.join("store/db").exists()
}

/// Fails if this process, which has the secrets of an edge, is to serve something else.
fn check_services_of_edge(config: &Config) -> anyhow::Result<()> {
    let served = config.split.served().map(|service| service.to_string());
    let others: Vec<_> = served.filter(|it| !EDGE_SERVICES.contains(&it.as_str())).collect();
    anyhow::ensure!(
        others.is_empty(),
        "{} has the secrets of an edge, which serves {} only: {} is refused; set only, or copy site.key, ca.pem and ca-key.pem from a process that has them",
        config.secrets().display(),
        EDGE_SERVICES.join(" and "),
        others.join(", ")
    );
    Ok(())
}
