//! The ranges in the store, and the rules for them.
//!
//! ```text
//! address/range/<id>                        the record
//! address/range-name/<name>                 ─▶ id
//! address/range-subnet/<subnet>/<id>        ─▶ id
//! ```

use nouns::{Delete, Edit, Noun, Served};
use runtime::Clock;
use store::records::{self, Change, Index, Kind, Records};
use store::{ScopedStore, Store as _};
use tinwright::address::v1 as pb;
use tinwright::status::Violations;
use tinwright::{RangeId, TenantName, check};

use crate::Error;
use crate::block::Span;
use crate::claims::{Claims, Holder};
use crate::subnets::{RANGE_INDEX, Subnets, name_rule, network};

/// The index of ranges by name.
const NAME_INDEX: &str = "range-name";
/// The most ranges of a subnet.
const MAX_RANGES: usize = 100;

/// The kind of these records.
#[derive(Debug)]
pub enum RangeKind {}

impl Kind for RangeKind {
    type Record = pb::Range;
    type Id = RangeId;
    const KIND: &'static str = "range";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX, RANGE_INDEX];

    fn indexes(range: &pb::Range) -> Vec<Index> {
        vec![Index::unique(NAME_INDEX, &range.name), Index::shared(RANGE_INDEX, &range.subnet_id)]
    }
}

impl Served for RangeKind {
    const NAME_INDEX: &'static str = NAME_INDEX;

    fn indexed_name(name: String) -> Result<String, String> {
        Ok(name)
    }
}

/// The ranges.
#[derive(Clone, Debug)]
pub struct Ranges {
    records: Records<RangeKind>,
    subnets: Subnets,
    claims: Claims,
    clock: Clock,
}

impl Ranges {
    /// The ranges of `subnets` in `store`, whose keys are the address service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, subnets: Subnets, clock: Clock) -> Self {
        Self { records: Records::new(store.clone()), subnets, claims: Claims::new(store), clock }
    }

    /// Returns the change by which `range` may be created, whose subnet's id becomes its stored form: neither another range nor
    /// grants are created meanwhile.
    async fn to_add(&self, range: &mut pb::Range) -> Result<Change, Error> {
        let subnet = self.subnets.usable("range.subnet_id", &range.subnet_id).await?;
        range.subnet_id.clone_from(&subnet.id);
        let addresses = span(range)?;
        check_in_network(range, addresses, &subnet)?;
        let others = self.of_subnet(&subnet.id).await?;
        if others.len() >= MAX_RANGES {
            let text = format!("subnet {} has {MAX_RANGES} ranges already", subnet.name);
            return Err(Violations::single("range.subnet_id", text).into());
        }
        for other in others {
            if span(&other)?.overlaps(addresses) {
                let text =
                    format!("{addresses} overlaps {} of range {}", span(&other)?, other.name);
                return Err(Error::Overlaps { noun: "range", id: other.id, text });
            }
        }
        // Grants and other ranges that are created meanwhile expect the subnet as it was.
        Ok(self.subnets.records().to_replace(&subnet, &subnet))
    }

    /// Returns the ranges of a subnet.
    pub(crate) async fn of_subnet(&self, subnet: &str) -> Result<Vec<pb::Range>, Error> {
        let prefix = format!("{RANGE_INDEX}/{subnet}/");
        let found = self.records.store().list(&prefix, "", MAX_RANGES + 1).await?;
        let mut ranges = Vec::new();
        for (key, _) in found.pairs {
            let id = key.strip_prefix(&prefix).unwrap_or_default();
            ranges.extend(self.records.get(id).await?);
        }
        Ok(ranges)
    }

    /// Deletes the new dynamic `range` again, if an address of it is granted. No more can be, since the range is there.
    async fn check_not_granted(&self, range: &pb::Range) -> Result<(), Error> {
        let Some(claim) = self.claims.find_in(span(range)?, Holder::GRANT).await? else {
            return Ok(());
        };
        self.records.commit(self.records.to_delete(range)).await?;
        Err(Error::Precondition {
            reason: "RANGE_IN_USE",
            subject: format!("grant/{}", claim.object_id),
            text: format!(
                "a dynamic range must not have granted addresses: {} is granted (grant {})",
                claim.block, claim.object_id
            ),
        })
    }
}

impl Noun for Ranges {
    type Kind = RangeKind;
    type Error = Error;

    fn records(&self) -> &Records<RangeKind> {
        &self.records
    }
}

impl Edit for Ranges {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn checked(&self, range: pb::Range, _: Option<&pb::Range>) -> Result<pb::Range, Violations> {
        checked(range)
    }

    async fn before_create(&self, range: &mut pb::Range) -> Result<Change, Error> {
        self.to_add(range).await
    }

    async fn after_create(&self, range: &pb::Range) -> Result<(), Error> {
        match range.kind() {
            pb::RangeKind::Dynamic => self.check_not_granted(range).await,
            pb::RangeKind::Unspecified | pb::RangeKind::Static => Ok(()),
        }
    }
}

/// Grants of a deleted range stay.
impl Delete for Ranges {}

/// Returns the addresses of a stored range.
pub(crate) fn span(range: &pb::Range) -> Result<Span, records::Error> {
    let corrupt = || store::Error::Corrupt(format!("range/{}", range.id));
    let (first, last) = (range.first.parse(), range.last.parse());
    let (Ok(first), Ok(last)) = (first, last) else { return Err(corrupt().into()) };
    Ok(Span::new(first, last).ok_or_else(corrupt)?)
}

/// Returns `range` in its stored form, if its fields are valid by themselves.
fn checked(mut range: pb::Range) -> Result<pb::Range, Violations> {
    let mut wrong = Violations::default();
    wrong.take("range.name", range.name.parse::<TenantName>().map_err(|_| name_rule()));
    wrong.take("range.labels", check::labels(&range.labels));
    let first = wrong.normalize("range.first", &mut range.first, parse_address);
    let last = wrong.normalize("range.last", &mut range.last, parse_address);
    match range.kind() {
        pb::RangeKind::Unspecified => range.kind = pb::RangeKind::Static.into(),
        pb::RangeKind::Static => {}
        pb::RangeKind::Dynamic if range.prefix_length != 0 => {
            wrong.add("range.prefix_length", "is set, but leases are of single addresses");
        }
        pb::RangeKind::Dynamic => {}
    }
    if let (Some(first), Some(last)) = (first, last) {
        let Some(span) = Span::new(first, last) else {
            wrong.add("range.last", format!("{last} does not follow {first}"));
            return Err(wrong);
        };
        let width = span.family().width();
        match range.prefix_length {
            0 => range.prefix_length = width,
            1.. if range.prefix_length > width => {
                wrong.add("range.prefix_length", format!("is over {width}"));
            }
            length if !span.is_of_blocks(length) => {
                let text = format!("{span} is not made of whole blocks of /{length}");
                wrong.add("range.prefix_length", text);
            }
            _ => {}
        }
    }
    wrong.into_result(range)
}

/// Parses an address in any range, also one that no host may have: it may be the first of a block.
fn parse_address(text: &str) -> Result<std::net::IpAddr, String> {
    let parsed: Result<std::net::IpAddr, _> = text.parse();
    parsed.map(|it| it.to_canonical()).map_err(|_| format!("{text:?} is not an IP address"))
}

fn check_in_network(range: &pb::Range, addresses: Span, subnet: &pb::Subnet) -> Result<(), Error> {
    let network = network(subnet)?;
    if !network.span().contains(addresses) {
        let text = format!("{addresses} is not in {network} of subnet {}", subnet.name);
        return Err(Violations::single("range.first", text).into());
    }
    if range.prefix_length < network.length() {
        let text = format!("/{} is larger than {network}", range.prefix_length);
        return Err(Violations::single("range.prefix_length", text).into());
    }
    Ok(())
}
