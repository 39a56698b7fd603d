//! Tests of the service as a whole.

mod blobs;
mod damage;
mod holders;
mod images;
mod interleavings;
mod lifecycle;
mod site;
mod uploads;
