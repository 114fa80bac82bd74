"""Type, shape and elements of a torch tensor in a row of a dataset; only imported where there is one."""

from __future__ import annotations

from hashlib import sha256

import torch


def tensor_content(tensor: torch.Tensor) -> object:
    """What tells the tensor from others, as plain values, wherever it lies; None where its elements cannot be read.

    The device is no content, nor is whether a gradient is wanted: rows may be moved between a save and a restore.
    """
    found = tensor.detach()
    if found.is_meta:
        return None
    if found.is_nested:
        return ["nested", [tensor_content(part) for part in found.unbind()]]
    if found.layout is torch.sparse_coo:
        found = found.coalesce()
        return ["sparse", tuple(found.shape), tensor_content(found.indices()), tensor_content(found.values())]
    if found.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = (found.crow_indices(), found.col_indices(), found.values())
        return [str(found.layout), tuple(found.shape), [tensor_content(part) for part in parts]]
    if found.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = (found.ccol_indices(), found.row_indices(), found.values())
        return [str(found.layout), tuple(found.shape), [tensor_content(part) for part in parts]]
    if found.layout is not torch.strided:
        return None
    if found.is_quantized:
        if found.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            return None
        scale = [str(found.dtype), found.q_scale(), found.q_zero_point()]
        return ["quantized", scale, tensor_content(found.int_repr())]
    on_host = found.resolve_conj().resolve_neg().cpu().contiguous()
    elements = on_host.reshape(-1).view(torch.uint8).numpy()
    return [str(found.dtype), tuple(found.shape), sha256(elements.data).hexdigest()]
