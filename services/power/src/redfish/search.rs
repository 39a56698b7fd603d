//! The search for the system in the BMC's record. Other systems of the BMC do not matter: they may
//! be off, broken or somebody else's.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use tokio::time::timeout;

use super::error::{Names, Unreadable};
use super::login::SYSTEMS_PATH;
use super::response::{Response, id, link};
use super::{Error, Redfish};

/// Maximum number of pages of a collection that are read.
const MAX_PAGES: usize = 64;
/// Maximum number of systems that are read to find one by its name.
const MAX_SYSTEMS: usize = 256;
/// Timeout of the first slow system that is read to find one by its name. After it the others are
/// read first.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of each later one.
const LATER_TIMEOUT: Duration = Duration::from_secs(10);
/// The start of a system that is given by its path.
const PATH_START: &str = "/redfish/";
/// The properties that may have the name of a system.
const NAMES: [&str; 4] = ["Id", "Name", "UUID", "HostName"];

impl Redfish {
    /// Returns the URL of the system in the BMC's record: at its path, or with its id, else with
    /// its name, else the only one.
    pub(super) async fn system_url(&mut self) -> Result<Url, Error> {
        if let Some(url) = &self.system {
            return Ok(url.clone());
        }
        let url = self.find().await?;
        self.system = Some(url.clone());
        Ok(url)
    }

    async fn find(&mut self) -> Result<Url, Error> {
        let wanted = self.target.system.clone();
        let root = self.connection.root.clone();
        if wanted.starts_with(PATH_START) {
            return self.connection.resolve(&root, &wanted);
        }
        let body = self.get(&root).await?.body;
        let systems = link(&body, "Systems").unwrap_or_else(|| SYSTEMS_PATH.into());
        let mut page = Some(self.connection.resolve(&root, &systems)?);
        let (mut urls, mut pages) = (Vec::new(), Vec::new());
        while let Some(url) = page.take() {
            let response = self.get(&url).await?;
            let members = response.body.get("Members").and_then(Value::as_array);
            for member in members.into_iter().flatten().filter_map(id) {
                let member = self.connection.resolve(&response.url, &member)?;
                if !wanted.is_empty() && last_segment(&member) == wanted {
                    return Ok(member);
                }
                urls.push(member);
            }
            pages.push(url);
            let next = response.body.get("Members@odata.nextLink").and_then(Value::as_str);
            let next = next.map(|next| self.connection.resolve(&response.url, next)).transpose()?;
            page = next.filter(|next| !pages.contains(next) && pages.len() < MAX_PAGES);
        }
        match urls.as_slice() {
            [] if wanted.is_empty() => Err(Error::NoSystems),
            [only] if wanted.is_empty() => Ok(only.clone()),
            all if wanted.is_empty() => {
                let names = all.iter().map(|url| last_segment(url).to_owned());
                Err(Error::AmbiguousSystem(Names(names.collect())))
            }
            _ => self.find_by_name(wanted, urls).await,
        }
    }

    /// Returns the URL of the system named `name`. Systems that cannot be read are left out. Those
    /// that do not answer soon are read after all others. On a slow BMC to leave each of them would
    /// cost more time than to wait, so later ones have more time than the first.
    async fn find_by_name(&mut self, name: String, urls: Vec<Url>) -> Result<Url, Error> {
        let mut search = NameSearch { name, ..NameSearch::default() };
        let mut slow = Vec::new();
        for url in urls.into_iter().take(MAX_SYSTEMS) {
            let limit = if slow.is_empty() { FIRST_TIMEOUT } else { LATER_TIMEOUT };
            match timeout(limit, self.has_name(&url, &mut search)).await {
                Err(_elapsed) => slow.push(url),
                Ok(has_name) => {
                    if has_name? {
                        return Ok(url);
                    }
                }
            }
        }
        for url in slow {
            if self.has_name(&url, &mut search).await? {
                return Ok(url);
            }
        }
        Err(search.not_found())
    }

    /// True if the system at `url` has the name. One that cannot be read is noted in `search`.
    async fn has_name(&mut self, url: &Url, search: &mut NameSearch) -> Result<bool, Error> {
        match self.get(url).await {
            Ok(Response { body, .. }) => Ok(NAMES
                .iter()
                .any(|key| body.get(key).is_some_and(|value| *value == *search.name))),
            Err(error) if error.is_of_bmc() => Err(error),
            Err(error) => {
                search.note(url, error);
                Ok(false)
            }
        }
    }
}

/// A search for a system by its name.
#[derive(Default)]
struct NameSearch {
    name: String,
    unreadable: Unreadable,
    /// The first connection that broke: the fault may be that of the BMC.
    broken: Option<Error>,
}

impl NameSearch {
    /// Notes that the system at `url` was not read.
    fn note(&mut self, url: &Url, error: Error) {
        if matches!(error, Error::Connection(_)) {
            self.broken.get_or_insert(error);
            return;
        }
        self.unreadable.is_transient |= error.is_transient();
        self.unreadable.systems.push(format!("{}: {error}", last_segment(url)));
    }

    /// Returns the error that no system has the name.
    fn not_found(self) -> Error {
        let Self { name, unreadable, broken } = self;
        broken.unwrap_or(Error::NoSystem { name, unreadable })
    }
}

/// Returns the last segment of a path: the id of a resource.
fn last_segment(url: &Url) -> &str {
    url.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}
