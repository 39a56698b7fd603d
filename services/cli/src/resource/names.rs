//! Names of other objects in files, and their ids.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use runtime::Channel;
use tonic::Code;

use super::Resource;
use crate::connect::View;
use crate::failure;

/// Ids of the objects that others name. Each is looked up once.
#[derive(Debug)]
pub struct Names<'a> {
    pub(crate) channel: &'a Channel,
    ids: RefCell<HashMap<(&'static str, String), String>>,
    /// Resource and name of objects that exist after a dry run has become a real one.
    expected: HashSet<(String, String)>,
    /// Resource and name of records that are other objects than those of the files.
    refused: RefCell<HashSet<(&'static str, String)>>,
}

impl<'a> Names<'a> {
    /// Returns a table without ids. The objects in `expected`, each with its resource and name, need not exist.
    pub fn new(channel: &'a Channel, expected: HashSet<(String, String)>) -> Self {
        Self { channel, ids: RefCell::default(), expected, refused: RefCell::default() }
    }

    /// Replaces the name in `field` of an object of `R` by its id, unless it is empty.
    pub async fn resolve<R: Resource>(&self, field: &mut String) -> anyhow::Result<()> {
        let key = (R::SINGULAR, field.clone());
        if field.is_empty() || field.parse::<tinwright::HardwareId>().is_ok() {
            return Ok(());
        }
        anyhow::ensure!(
            !self.refused.borrow().contains(&key),
            "its {}: the record {field:?} is not that of the files",
            R::SINGULAR
        );
        let stored = self.ids.borrow().get(&key).cloned();
        *field = match stored {
            Some(id) => id,
            None => match R::find(self.channel, field, View::Basic).await {
                Ok(object) => object.id().to_owned(),
                Err(error) if failure::is_not_found(&error) && self.is_expected::<R>(field) => {
                    field.clone()
                }
                // A caller that may not look it up leaves it to the server.
                Err(error) if failure::code(&error) == Some(Code::PermissionDenied) => {
                    field.clone()
                }
                Err(error) => return Err(error.context(format!("its {}", R::SINGULAR))),
            },
        };
        self.ids.borrow_mut().insert(key, field.clone());
        Ok(())
    }

    /// Replaces each of the names in `fields`.
    pub async fn resolve_all<R: Resource>(&self, fields: &mut [String]) -> anyhow::Result<()> {
        for field in fields {
            self.resolve::<R>(field).await?;
        }
        Ok(())
    }

    /// Makes references to the object of `R` with this `name` fail: the record with this name is
    /// another object.
    pub(super) fn refuse<R: Resource>(&self, name: &str) {
        self.refused.borrow_mut().insert((R::SINGULAR, name.to_owned()));
    }

    fn is_expected<R: Resource>(&self, name: &str) -> bool {
        self.expected.contains(&(R::NAME.to_owned(), name.to_owned()))
    }
}
