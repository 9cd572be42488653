"""Every architecture of transformers' maps, built small with random weights: does its ledger close?"""
