"""Salvage: records that only one side holds are kept, checked, replayed."""
