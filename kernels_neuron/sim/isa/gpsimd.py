"""gpsimd"""
