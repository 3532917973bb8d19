"""Store folder of a configuration, brought up to date with its object storage."""

from pathlib import Path

from tasks.inputs.loader import Loaded
from tasks.store.tables.object_storage import Mirror, bind, check_installed


def store_path(loaded: Loaded) -> Path:
    """Return the folder of the results store; relative paths start from the configuration."""
    return (loaded.base_dir / loaded.configuration.storage.folder).resolve()


def bound_folder(loaded: Loaded) -> Path:
    """Return the folder of the results store, as the working copy of its address if it has one.

    Raises:
        StoreError: the extra is not installed, or the folder belongs to another address.
    """
    url = loaded.configuration.storage.remote
    return store_path(loaded) if url is None else bound_store(loaded, url)


def bound_store(loaded: Loaded, url: str) -> Path:
    """Return the folder of the results store, as the working copy of an address.

    Raises:
        StoreError: the extra is not installed, or the folder belongs to another address.
    """
    check_installed()
    path = store_path(loaded)
    bind(path, url)
    return path


def ready_store(loaded: Loaded) -> Path:
    """Return the folder of the results store, with all that other machines have published.

    Raises:
        StoreError: object storage cannot be used: the extra, the address or the credentials.
    """
    url = loaded.configuration.storage.remote
    if url is None:
        return store_path(loaded)
    path = bound_store(loaded, url)
    Mirror(path, url).pull()
    return path
