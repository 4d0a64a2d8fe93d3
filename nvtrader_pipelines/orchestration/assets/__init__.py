"""Asset graph, by idea, with the owners and columns of every asset."""

import dagster as dg

from nvtrader_pipelines.orchestration.reports import asset_key, table_metadata
from nvtrader_pipelines.storage.tables import TABLES

OWNERS = ["team:nvtrader"]
COLUMNS = {asset_key(table): table_metadata(table) for table in TABLES}


def add_owners_and_columns(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Add the owners, and the columns of the table if the asset has one."""
    return spec.merge_attributes(owners=OWNERS, metadata=COLUMNS.get(spec.key, {}))


ASSETS = [
    asset.map_asset_specs(add_owners_and_columns)
    for asset in dg.load_assets_from_package_name(__name__)
    if isinstance(asset, dg.AssetsDefinition)
]

__all__ = ["ASSETS"]
