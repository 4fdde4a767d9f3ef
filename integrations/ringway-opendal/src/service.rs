//! The service: which operation does what. The work is in the other files.

use crate::SCHEME;
use crate::delete::FsDeleter;
use crate::disk::Disk;
use crate::error::not_found;
use crate::list::FsLister;
use crate::metadata::look_up;
use crate::publication::Target;
use crate::read::FsReader;
use crate::relocate::{copy, create_dir, relocate};
use crate::write::FsWriter;
use opendal_core::raw::{
    OpCopy, OpCreateDir, OpList, OpPresign, OpRead, OpRename, OpStat, OpWrite, RpCreateDir,
    RpPresign, RpRename, RpStat, Service, ServiceInfo, oio,
};
use opendal_core::{Capability, Error, ErrorKind, OperationContext, Result};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct FsService {
    disk: Arc<Disk>,
    info: ServiceInfo,
}

impl FsService {
    pub(crate) fn new(disk: Arc<Disk>) -> Self {
        let info = ServiceInfo::new(SCHEME, disk.root.to_string_lossy(), "");
        Self { disk, info }
    }
}

impl Service for FsService {
    type Reader = FsReader;
    type Writer = FsWriter;
    type Lister = FsLister;
    type Deleter = oio::OneShotDeleter<FsDeleter>;
    type Copier = oio::OneShotCopier;
    type Composer = ();

    fn info(&self) -> ServiceInfo {
        self.info.clone()
    }

    fn capability(&self) -> Capability {
        Capability {
            stat: true,
            read: true,
            read_with_suffix: true,
            write: true,
            write_can_empty: true,
            write_can_append: true,
            write_can_multi: true,
            write_with_if_not_exists: true,
            write_with_user_metadata: true,
            create_dir: true,
            delete: true,
            delete_with_recursive: true,
            list: true,
            list_with_recursive: true,
            copy: true,
            copy_with_if_not_exists: true,
            rename: true,
            rename_with_if_not_exists: true,
            shared: true,
            ..Default::default()
        }
    }

    async fn create_dir(
        &self,
        _: &OperationContext,
        path: &str,
        _: OpCreateDir,
    ) -> Result<RpCreateDir> {
        create_dir(&self.disk, self.disk.path(path)?).await?;
        Ok(RpCreateDir::default())
    }

    async fn stat(&self, _: &OperationContext, path: &str, _: OpStat) -> Result<RpStat> {
        let path = self.disk.path(path)?;
        let found = self.disk.engine.call(move || look_up(&path)).await;
        Ok(RpStat::new(found.map_err(not_found("look up"))?))
    }

    fn read(&self, _: &OperationContext, path: &str, _: OpRead) -> Result<Self::Reader> {
        Ok(FsReader::new(self.disk.clone(), self.disk.path(path)?))
    }

    fn write(&self, ctx: &OperationContext, path: &str, op: OpWrite) -> Result<Self::Writer> {
        let path = self.disk.target(path)?;
        Ok(FsWriter::new(self.disk.clone(), path, ctx.executor().clone(), &op))
    }

    fn delete(&self, _: &OperationContext) -> Result<Self::Deleter> {
        Ok(oio::OneShotDeleter::new(FsDeleter { disk: self.disk.clone() }))
    }

    fn list(&self, _: &OperationContext, path: &str, op: OpList) -> Result<Self::Lister> {
        self.disk.path(path)?;
        Ok(FsLister::new(self.disk.clone(), path, op.recursive()))
    }

    fn copy(&self, _: &OperationContext, from: &str, to: &str, op: OpCopy) -> Result<Self::Copier> {
        let from = self.disk.path(from)?;
        let target = Target {
            disk: self.disk.clone(),
            path: self.disk.target(to)?,
            exclusive: op.if_not_exists(),
            user: Arc::new([]),
        };
        Ok(oio::OneShotCopier::new(copy(from, target)))
    }

    async fn rename(
        &self,
        _: &OperationContext,
        from: &str,
        to: &str,
        op: OpRename,
    ) -> Result<RpRename> {
        let (from, to) = (self.disk.path(from)?, self.disk.target(to)?);
        relocate(&self.disk, from, to, op.if_not_exists()).await?;
        Ok(RpRename::default())
    }

    async fn presign(&self, _: &OperationContext, _: &str, _: OpPresign) -> Result<RpPresign> {
        Err(Error::new(ErrorKind::Unsupported, "local files cannot be presigned"))
    }
}
